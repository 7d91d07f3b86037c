//! The real password, and the three ways in which a server can ask for it.

use std::fmt::Write as _;
use std::sync::Arc;

use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

use super::super::secret::SecretValue;
use super::super::vault::Secret;
use super::scram::{Challenge, Proof, Proved};

/// Does not print.
#[derive(Clone)]
pub struct Password(Arc<SecretValue>);

impl Secret {
    /// None of another kind.
    pub fn postgres_password(&self) -> Option<Password> {
        self.declaration().postgres.as_ref()?;
        self.value_shared().map(Password)
    }

    /// The last message for a client that has proved that it knows a stand-in of it. Slow the first time.
    pub fn is_proved(&self, proof: &Proof, salt: &[u8; 16]) -> Option<String> {
        self.declaration().postgres.as_ref()?;
        self.verifiers(salt).iter().find_map(|verifier| proof.is_of(verifier))
    }
}

impl Password {
    /// Takes as long as the server's iterations.
    pub fn prove(&self, challenge: Challenge) -> Proved {
        challenge.prove(self.0.expose())
    }

    /// As the server has asked for it with AuthenticationMD5Password.
    pub fn md5(&self, user: &str, salt: [u8; 4]) -> Zeroizing<String> {
        md5(self.0.expose(), user, salt)
    }

    pub fn in_clear(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.0.expose().as_bytes().to_vec())
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

fn md5(password: &str, user: &str, salt: [u8; 4]) -> Zeroizing<String> {
    let hex = |parts: [&[u8]; 2]| {
        let mut digest = Md5::new();
        parts.iter().for_each(|part| digest.update(part));
        let mut text = Zeroizing::new(String::with_capacity(35));
        digest.finalize().iter().for_each(|byte| {
            let _ = write!(text, "{byte:02x}");
        });
        text
    };
    let stored = hex([password.as_bytes(), user.as_bytes()]);
    Zeroizing::new(format!("md5{}", *hex([stored.as_bytes(), &salt])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `md5sum` makes it of the same.
    #[test]
    fn md5_is_of_password_user_and_salt() {
        assert_eq!(*md5("pencil", "user", [1, 2, 3, 4]), "md54376eb6913b38f9aaff38dc7cf19ca76");
    }
}
