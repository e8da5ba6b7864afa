//! The keys of cached answers, wrapped as those of letters are.

use tidegate_client::cache::{AnswerKeyId, KeyWrap};
use tidegate_core::letter::LetterId;
use zeroize::Zeroizing;

use super::{Keyring, Recipient};

/// Wraps the keys of the response cache of a pipeline whose letters are sealed.
#[derive(Clone, Debug)]
pub struct AnswerWrap {
    recipient: Recipient,
    keys: Keyring,
}

impl AnswerWrap {
    /// Wraps to the recipient of the letters. Without secret keys, what an earlier run has sealed stays closed.
    #[must_use]
    pub fn new(recipient: Recipient, keys: Keyring) -> AnswerWrap {
        AnswerWrap { recipient, keys }
    }
}

impl KeyWrap for AnswerWrap {
    fn recipient(&self) -> &str {
        &self.recipient.key_id
    }

    fn wrap(&self, id: AnswerKeyId, key: &[u8; 32]) -> Result<Vec<u8>, String> {
        self.recipient.wrap(LetterId(u128::from_be_bytes(id)), key).map_err(|e| e.to_string())
    }

    fn unwrap(&self, id: AnswerKeyId, recipient: &str, wrapped: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        self.keys.record_key(LetterId(u128::from_be_bytes(id)), recipient, wrapped).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::seal::SecretKey;

    #[test]
    fn a_key_opens_with_the_secret_only() {
        let (mine, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let worker = AnswerWrap::new(mine.recipient(), Keyring::default());
        let wrapped = worker.wrap([1; 16], &[7; 32]).unwrap();
        let open = |keys: Vec<SecretKey>, id| {
            let reader = AnswerWrap::new(other.recipient(), Keyring(keys));
            reader.unwrap(id, worker.recipient(), &wrapped).map(|key| *key)
        };
        assert_eq!(open(vec![other.clone(), mine.clone()], [1; 16]), Some([7; 32]));
        assert_eq!((open(vec![mine.clone()], [2; 16]), open(vec![other.clone()], [1; 16])), (None, None));
        assert_eq!(open(vec![], [1; 16]), None);
    }
}
