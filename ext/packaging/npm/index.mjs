import idem from './index.cjs';

export const load = idem.load;
export const getLoadablePath = idem.getLoadablePath;
export default idem;
