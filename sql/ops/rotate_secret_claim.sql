-- Claims while the secret of idem_hmac_fingerprint() is being changed. A record keeps the
-- fingerprint it was made with; under the new secret the same request has another one, and an
-- honest retry would be told 'mismatch'. So a key that is there under the old secret is claimed
-- under the old one, and every other key under the new one. The application uses this from the
-- rotation until ops/rotate_secret_check says that the old secret has served.
--
--   :old_secret, :new_secret   at least 16 bytes each
--   :scope, :key, :body, :operation, :token   as always
--
-- One transaction: nobody makes the record between the two questions.

BEGIN IMMEDIATE;

SELECT idem_claim(
  :scope, :key,
  ifnull(
    (SELECT fingerprint FROM idem_records
     WHERE scope = :scope AND key = :key
       AND fingerprint = idem_hmac_fingerprint(:old_secret, :body)),
    idem_hmac_fingerprint(:new_secret, :body)),
  :operation, :token);

COMMIT;
