//! The commands that git runs on a server (git(1), "git-upload-pack" and "git-receive-pack" in `connect.c`): one of two
//! programs and one repository in single quotes. Nothing else is a command here. Pure.

use std::fmt;

/// Bytes of a command at the most.
const LONGEST: usize = 512;

/// What git asks a server for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    service: Service,
    /// As it was written, without its quotes.
    repository: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// To fetch.
    UploadPack,
    /// To push.
    ReceivePack,
}

/// Why a command is not one of git's. Says nothing of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("only git-upload-pack (fetch) and git-receive-pack (push) are passed on, and no other command")]
    Program,
    #[error(
        "git-lfs-authenticate would put a real token into the container; use LFS over HTTPS: git config lfs.url \
         https://HOST/REPOSITORY/info/lfs"
    )]
    Lfs,
    #[error("the repository must be one word in single quotes, as git writes it")]
    Quotes,
    #[error(
        "the name of the repository may have letters, digits and `-`, `_`, `.`, `+`, `@` between its slashes, and nothing else"
    )]
    Letters,
    #[error("the name of the repository has an empty part, or one that begins with `-`, or is `.` or `..`")]
    Part,
    #[error("the command has more than {LONGEST} bytes")]
    TooLong,
}

impl Service {
    /// By the program's name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::UploadPack, Self::ReceivePack].into_iter().find(|service| service.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }

    /// As rules call it in `git`.
    pub fn direction(self) -> &'static str {
        match self {
            Self::UploadPack => "read",
            Self::ReceivePack => "write",
        }
    }
}

impl Command {
    /// Of [`Command::request_target`].
    pub const METHOD: &str = "POST";

    pub fn parse(bytes: &[u8]) -> Result<Self, CommandError> {
        if bytes.len() > LONGEST {
            return Err(CommandError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| CommandError::Program)?;
        let (program, argument) = text.split_once(' ').ok_or(CommandError::Program)?;
        let service = match (Service::named(program), program) {
            (Some(service), _) => service,
            (None, "git-lfs-authenticate" | "git-lfs-transfer") => return Err(CommandError::Lfs),
            (None, _) => return Err(CommandError::Program),
        };
        let repository = argument.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        let repository = repository.ok_or(CommandError::Quotes)?;
        if repository.contains('\'') {
            return Err(CommandError::Quotes);
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+' | b'@' | b'/');
        if !repository.bytes().all(plain) {
            return Err(CommandError::Letters);
        }
        let mut parts = repository.strip_prefix('/').unwrap_or(repository).split('/');
        if parts.any(|part| matches!(part, "" | "." | "..") || part.starts_with('-')) {
            return Err(CommandError::Part);
        }
        Ok(Self { service, repository: repository.to_owned() })
    }

    pub fn service(&self) -> Service {
        self.service
    }

    /// With one slash before it, whether it was written with one or not.
    pub fn path(&self) -> String {
        format!("/{}", self.repository.strip_prefix('/').unwrap_or(&self.repository))
    }

    /// The target of the request that the same would be over HTTPS (gitprotocol-http(5)), by which policies are asked.
    pub fn request_target(&self) -> String {
        format!("{}/{}", self.path(), self.service.name())
    }
}

/// As it is sent to the server.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}'", self.service.name(), self.repository)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_git_writes_is_understood() {
        for (text, service, target) in [
            ("git-upload-pack 'org/repo.git'", Service::UploadPack, "/org/repo.git/git-upload-pack"),
            ("git-upload-pack '/org/repo'", Service::UploadPack, "/org/repo/git-upload-pack"),
            ("git-receive-pack 'a/b/c-1_2.x+y@z'", Service::ReceivePack, "/a/b/c-1_2.x+y@z/git-receive-pack"),
            ("git-receive-pack 'repo'", Service::ReceivePack, "/repo/git-receive-pack"),
        ] {
            let command = Command::parse(text.as_bytes()).unwrap();
            assert_eq!((command.service(), command.request_target().as_str()), (service, target));
            assert_eq!(command.to_string(), text);
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for (text, error) in [
            ("", CommandError::Program),
            ("git-upload-pack", CommandError::Program),
            ("sh -c 'id'", CommandError::Program),
            ("git upload-pack 'org/repo'", CommandError::Program),
            ("/usr/bin/git-upload-pack 'org/repo'", CommandError::Program),
            ("git-upload-archive 'org/repo'", CommandError::Program),
            ("git-upload-pack\t'org/repo'", CommandError::Program),
            (" git-upload-pack 'org/repo'", CommandError::Program),
            ("GIT-UPLOAD-PACK 'org/repo'", CommandError::Program),
            ("git-lfs-authenticate org/repo download", CommandError::Lfs),
            ("git-lfs-transfer org/repo download", CommandError::Lfs),
            ("git-upload-pack org/repo", CommandError::Quotes),
            ("git-upload-pack \"org/repo\"", CommandError::Quotes),
            ("git-upload-pack 'org/repo", CommandError::Quotes),
            ("git-upload-pack '", CommandError::Quotes),
            ("git-upload-pack  'org/repo'", CommandError::Quotes),
            ("git-upload-pack 'org/repo' ", CommandError::Quotes),
            ("git-upload-pack --strict 'org/repo'", CommandError::Quotes),
            ("git-upload-pack 'org/repo' 'x'", CommandError::Quotes),
            ("git-upload-pack 'org/repo'; id; ''", CommandError::Quotes),
            ("git-upload-pack 'it'\\''s'", CommandError::Quotes),
            ("git-upload-pack 'org/re po'", CommandError::Letters),
            ("git-upload-pack 'org/repo\n'", CommandError::Letters),
            ("git-upload-pack 'org/repo\0'", CommandError::Letters),
            ("git-upload-pack '~root/repo'", CommandError::Letters),
            ("git-upload-pack 'org%2Frepo'", CommandError::Letters),
            ("git-upload-pack 'org\\repo'", CommandError::Letters),
            ("git-upload-pack 'org/rep\u{f6}'", CommandError::Letters),
            ("git-upload-pack ''", CommandError::Part),
            ("git-upload-pack '/'", CommandError::Part),
            ("git-upload-pack '//org/repo'", CommandError::Part),
            ("git-upload-pack 'org//repo'", CommandError::Part),
            ("git-upload-pack 'org/repo/'", CommandError::Part),
            ("git-upload-pack 'org/../repo'", CommandError::Part),
            ("git-upload-pack './repo'", CommandError::Part),
            ("git-upload-pack '--upload-pack=x'", CommandError::Letters),
            ("git-upload-pack '-x'", CommandError::Part),
            ("git-upload-pack 'org/-x'", CommandError::Part),
        ] {
            assert_eq!(Command::parse(text.as_bytes()), Err(error), "{text:?}");
        }
        let long = format!("git-upload-pack '{}'", "a".repeat(LONGEST));
        assert_eq!(Command::parse(long.as_bytes()), Err(CommandError::TooLong));
        assert_eq!(Command::parse(b"git-upload-pack '\xff'"), Err(CommandError::Program));
    }

    proptest! {
        #[test]
        fn what_is_passed_on_is_one_program_with_one_plain_word(text in "(git-(upload|receive)-pack)? ?'?[ -~]{0,40}'?") {
            if let Ok(command) = Command::parse(text.as_bytes()) {
                prop_assert_eq!(command.to_string(), text.clone());
                let word = text.split_once(' ').unwrap().1;
                prop_assert!(!word[1..word.len() - 1].contains(['\'', ' ', '$', '`']));
                prop_assert_eq!(Command::parse(command.to_string().as_bytes()), Ok(command));
            }
        }

        #[test]
        fn no_bytes_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            drop(Command::parse(&bytes));
        }
    }
}
