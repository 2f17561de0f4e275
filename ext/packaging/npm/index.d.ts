/** A Database of better-sqlite3, of node-sqlite3 (with a callback), or of node:sqlite. */
export interface Loads {
  loadExtension(file: string, ...rest: any[]): any;
}

/** Loads idem into a connection. node-sqlite3 wants a callback, which gets the error or null. */
export function load(db: Loads, callback?: (error: Error | null) => void): any;

/** The library's file. The environment variable IDEM_LOADABLE names another one. */
export function getLoadablePath(): string;
