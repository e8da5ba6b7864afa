//! A service account of Google that signs its own tokens.
//!
//! APIs other than Cloud Storage accept a token that the account itself has signed for them (a JWT
//! with their address as the audience), so no token is fetched, and it works without a way to
//! Google's token service.

use super::gcs::GcsIdentity;
use super::renew::{CredentialFault, Issued, RenewingCredential};
use super::{OpenError, wrong};
use crate::lane::Clock;
use crate::secret::{Secret, issued};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use object_store::gcp::GcpCredential;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use std::sync::Arc;
use tidegate_core::signal::{Finding, Means};
use tidegate_core::{Code, Wall};

/// How long a token is valid, in seconds; Google accepts an hour.
const VALID_SECONDS: i64 = 3600;

/// What is read of the JSON of a service account.
#[derive(Deserialize)]
struct AccountFile {
    client_email: String,
    private_key: String,
    #[serde(default)]
    private_key_id: String,
}

/// The key of a service account.
struct AccountKey {
    email: String,
    id: String,
    pair: RsaKeyPair,
}

/// The identity of a service account for the API of this audience. `from` says where its JSON is.
pub(super) fn identity(
    account: &Secret,
    from: &str,
    audience: &str,
    clock: Clock,
) -> Result<GcsIdentity, OpenError> {
    super::gcs::service_account(account.reveal(), from)?;
    let unusable = || wrong(format!("the private key of the service account in {from} cannot be used"));
    let file: AccountFile = serde_json::from_str(account.reveal())
        .map_err(|_| wrong(format!("{from} is not the JSON of a service account")))?;
    // The key is a secret in itself, also without the JSON around it.
    let key = issued(file.private_key);
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.reveal().as_bytes()).map_err(|_| unusable())?;
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| unusable())?;
    let key = Arc::new(AccountKey { email: file.client_email, id: file.private_key_id, pair });
    let audience = audience.to_owned();
    Ok(RenewingCredential::new(clock, move || {
        let (key, audience) = (key.clone(), audience.clone());
        async move {
            let now = clock.wall();
            let token = key.token(&audience, now).ok_or_else(|| CredentialFault {
                finding: Finding { means: Means::Permanent, code: Code::UNAUTHORIZED },
                words: "the service account could not sign a token".to_owned(),
            })?;
            let bearer = issued(token).reveal().to_owned();
            let expires = Some(Wall::from_millis(now.millis().saturating_add(VALID_SECONDS * 1000)));
            let shown = format!("Bearer {bearer}");
            Ok(Issued { credential: GcpCredential { bearer }, shown, expires })
        }
    }))
}

impl AccountKey {
    fn token(&self, audience: &str, now: Wall) -> Option<String> {
        let encode = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let seconds = now.millis() / 1000;
        let head = encode(serde_json::json!({ "alg": "RS256", "typ": "JWT", "kid": self.id }));
        let claims = encode(serde_json::json!({
            "iss": self.email, "sub": self.email, "aud": audience,
            "iat": seconds, "exp": seconds.saturating_add(VALID_SECONDS),
        }));
        let message = format!("{head}.{claims}");
        let mut signature = vec![0; self.pair.public().modulus_len()];
        let random = SystemRandom::new();
        self.pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).ok()?;
        Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use super::*;
    use object_store::CredentialProvider as _;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::Value;

    /// A new key in PEM. No Rust crate of ours makes one for RSA.
    fn new_key() -> String {
        let args = ["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
        let made = std::process::Command::new("openssl").args(args).output();
        String::from_utf8(made.expect("this test needs the program openssl").stdout).unwrap()
    }

    #[tokio::test]
    async fn an_account_signs_tokens_for_one_api() {
        let pem = new_key();
        let json = serde_json::json!({
            "type": "service_account", "client_email": "worker@p.iam.test", "private_key": pem, "private_key_id": "k1",
        });
        let account = Secret::new(json.to_string());
        let identity =
            identity(&account, "file:a", "https://pubsub.googleapis.com/", Clock::system()).unwrap();
        let token = identity.get_credential().await.unwrap().bearer.clone();
        let parts: Vec<&str> = token.split('.').collect();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let json = |text: &str| serde_json::from_slice::<Value>(&decode(text)).unwrap();
        let (head, claims) = (json(parts[0]), json(parts[1]));
        assert_eq!((head["alg"].as_str(), head["kid"].as_str()), (Some("RS256"), Some("k1")));
        assert_eq!(claims["aud"], "https://pubsub.googleapis.com/");
        assert_eq!(
            (&claims["iss"], &claims["sub"]),
            (&"worker@p.iam.test".into(), &"worker@p.iam.test".into())
        );
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), VALID_SECONDS);
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref());
        let signed = format!("{}.{}", parts[0], parts[1]);
        assert!(public.verify(signed.as_bytes(), &decode(parts[2])).is_ok());
        // The same token until it is due.
        assert_eq!(identity.get_credential().await.unwrap().bearer, token);
    }

    #[test]
    fn a_key_that_cannot_be_used_is_not_quoted() {
        let account = r#"{"type":"service_account","client_email":"a","private_key":"SECRET"}"#;
        let found = identity(&Secret::new(account.into()), "file:a", "x", Clock::system()).err().unwrap();
        assert_eq!(found.to_string(), "the private key of the service account in file:a cannot be used");
    }
}
