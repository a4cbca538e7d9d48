// Decrypts the message of a push notification (RFC 8291), as a browser does.
// Arguments: the file with the message, and the private key and the secret of the subscription in base64url.
import { createECDH } from "node:crypto";
import { readFileSync } from "node:fs";
import ece from "http_ece";

const [file, key, authSecret] = process.argv.slice(2);
const privateKey = createECDH("prime256v1");
privateKey.setPrivateKey(Buffer.from(key, "base64url"));
process.stdout.write(ece.decrypt(readFileSync(file), { version: "aes128gcm", privateKey, authSecret }));
