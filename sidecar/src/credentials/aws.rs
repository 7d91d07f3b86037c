//! Keys of AWS and of what speaks like it, with which requests are signed (Signature Version 4): the key with what
//! containers have instead ([`AwsKey`]), what it may be used for ([`Binding`]), and one request that is signed with the
//! stand-in and goes on signed with the key ([`Signing`]). Neither secret key ever travels.

mod binding;
mod bucket;
mod key;
mod signing;

pub use self::binding::Binding;
pub(super) use self::binding::Written;
pub use self::key::{AwsKey, KeyError};
pub use self::signing::Signing;
pub(super) use self::signing::check;

use understudy_control::{LoginFile, PlacedFile, Write};

/// Where the clients look (`aws configure`), beside the variables.
const FILE: &str = "~/.aws/credentials";
/// In the words of `place`: values of lines.
const POINTERS: [&str; 3] = ["env:aws_access_key_id", "env:aws_secret_access_key", "env:aws_session_token"];

/// The variables that hold the stand-ins.
pub(super) fn environment<'k>(key: &'k AwsKey, secret: &'k str) -> Vec<(&'static str, &'k str)> {
    let token = key.token().map(|(_, stand_in)| ("AWS_SESSION_TOKEN", stand_in));
    let key = [("AWS_ACCESS_KEY_ID", key.id().1), ("AWS_SECRET_ACCESS_KEY", secret)];
    key.into_iter().chain(token).collect()
}

/// The file with them, and that a real key there is not overlooked.
pub(super) fn file(key: &AwsKey, secret: &str) -> (PlacedFile, LoginFile) {
    let lines = environment(key, secret);
    let lines = lines.iter().map(|(name, value)| format!("{} = {value}\n", name.to_ascii_lowercase()));
    let placed = PlacedFile {
        path: FILE.to_owned(),
        mode: 0o600,
        write: Write::Create,
        content: format!("[default]\n{}", lines.collect::<String>()),
    };
    (placed, LoginFile { path: FILE.to_owned(), pointers: POINTERS.map(str::to_owned).to_vec() })
}

#[cfg(test)]
mod tests;
