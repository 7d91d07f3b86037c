//! The question to the sidecar.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use understudy_control::{CallError, ChannelError, Client, Prepare, Prepared, Refusal, Reply, Request, User};

use super::config::Config;
use super::storage::Origin;
use crate::installation::Installation;

pub(super) const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn request(config: &Config, origin: Origin, annotations: BTreeMap<String, String>) -> Prepare {
    let process = config.spec.process().as_ref();
    let user = process.map(|process| User { uid: process.user().uid(), gid: process.user().gid() });
    let env = process.and_then(|process| process.env().as_ref()).into_iter().flatten();
    Prepare {
        id: config.id.clone(),
        name: origin.name,
        image: origin.image,
        annotations,
        user: user.unwrap_or(User { uid: 0, gid: 0 }),
        env: env
            // One without a value is searched as well: the name may be what must not be inside.
            .map(|entry| entry.split_once('=').unwrap_or((entry, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        args: process.and_then(|process| process.args().clone()).unwrap_or_default(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    }
}

pub(crate) fn ask(installation: &Installation, request: Prepare) -> Result<Prepared, Refusal> {
    let client = Client::new(installation.control(), PATIENCE);
    match client.call(Request::Prepare(Box::new(request)), &[]) {
        Ok(Reply::Prepared(prepared)) => Ok(*prepared),
        Ok(_) => Err(unreachable(&CallError::Unexpected)),
        Err(CallError::Refused(refusal)) => Err(refusal),
        Err(error) => Err(unreachable(&error)),
    }
}

pub(super) fn unreachable(error: &CallError) -> Refusal {
    let remedy = match error {
        CallError::Directory(_) | CallError::Connect { .. } => {
            "start the sidecar (podman start understudy, or its unit), then start this container again; \
             understudy-hook doctor tells what is missing"
        }
        CallError::Channel(ChannelError::TooLarge) => {
            "give the container a smaller environment (--env, --env-file), a shorter command or fewer mounts"
        }
        _ => "restart the sidecar, then run: understudy-hook doctor",
    };
    let refusal = Refusal::new(error.to_string(), remedy);
    match error {
        CallError::Directory(error) if !error.is_absent() => refusal,
        CallError::Connect { source, .. } if !is_passing(source) => refusal,
        CallError::Directory(_) | CallError::Connect { .. } => refusal.temporary(),
        CallError::Channel(ChannelError::Deadline | ChannelError::Closed) => refusal.temporary(),
        _ => refusal,
    }
}

/// Nobody listens yet, or too many ask at once.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{installation, sample};
    use super::*;

    #[test]
    fn the_request_carries_user_environment_and_command() {
        let request = request(
            &sample("none-4.3.1"),
            Origin { name: Some("n".into()), ..Origin::default() },
            BTreeMap::new(),
        );
        assert_eq!(request.env["HOME"], "/root");
        assert!(!request.args.is_empty());
        assert_eq!(request.user, User { uid: 0, gid: 0 });
    }

    #[test]
    fn a_variable_without_a_value_is_searched_too() {
        let mut document = sample("none-4.3.1").document;
        document["process"]["env"].as_array_mut().unwrap().push("sk-of-somebody".into());
        let config = Config::read(serde_json::to_vec(&document).unwrap().as_slice()).unwrap();
        let request = request(&config, Origin::default(), BTreeMap::new());
        assert_eq!(request.env["sk-of-somebody"], "");
    }

    #[test]
    fn a_remedy_fits_what_went_wrong() {
        let too_large = unreachable(&CallError::Channel(ChannelError::TooLarge));
        assert!(too_large.remedy.contains("--env") && !too_large.temporary, "{too_large:?}");
        let silent = unreachable(&CallError::Channel(ChannelError::Deadline));
        assert!(silent.remedy.contains("restart the sidecar") && silent.temporary, "{silent:?}");
    }

    #[test]
    fn no_sidecar_is_a_refusal_that_says_what_to_start() {
        let dir = tempfile::tempdir().unwrap();
        let request = request(&sample("none-4.3.1"), Origin::default(), BTreeMap::new());
        let refusal = ask(&installation(dir.path()), request).unwrap_err();
        assert!(refusal.reason.contains("the sidecar cannot be reached"), "{refusal:?}");
        assert!(refusal.remedy.contains("start the sidecar"), "{refusal:?}");
    }
}
