//! What one exchange is searched for: of one vault, however long the exchange lasts.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use crate::accounts::Account;
use crate::credentials::scrub::{Patterns, Watched};
use crate::credentials::{Grants, Holdings, MintedNow, RequestHead, Secret, Vault};

#[derive(Debug)]
pub(super) struct Searches {
    vault: Arc<Vault>,
    answers: Arc<Patterns>,
    requests: Arc<Patterns>,
    nothing: Arc<Patterns>,
    text: Arc<Patterns>,
    /// Whose stand-ins are swapped in text messages of a WebSocket.
    pub(super) text_secrets: Vec<String>,
    /// Whether the host gets a secret of this container, the request does whatever the host, or what was minted for it and is a
    /// stand-in inside: what it answers must be searched, or not passed on.
    pub(super) bound: bool,
    /// Whether that is one that travels: what signs does not come back, so an encoded answer may go on as it is.
    pub(super) decoded: bool,
}

impl Searches {
    pub(super) fn new(
        vault: Arc<Vault>,
        grants: &Grants,
        (holdings, minted): (&Holdings, &MintedNow),
        head: RequestHead<'_>,
        swapped: &[String],
    ) -> Self {
        let granted = vault.secrets().iter().filter(|secret| grants.contains(secret.name()));
        let mut here = granted.filter(|secret| secret.declaration().is_bound_to(head.host)).peekable();
        let minted = minted.is_swapped_at(grants, head.host);
        let bound = minted || !swapped.is_empty() || here.peek().is_some();
        // A token endpoint gets a key's signature, and answers with a token, though the key may be bound to other hosts alone.
        let mut swapped = swapped.iter().map(|name| vault.secret(name));
        let travels = |secret: &Secret| secret.aws_key().is_none();
        let decoded = minted || here.any(travels) || swapped.any(|secret| secret.is_none_or(travels));
        let (answers, requests) = (holdings.scrub(&vault, grants), vault.watch());
        let (text, text_secrets) = vault.websocket_text(grants, head);
        let (text, nothing) = (Arc::new(text), Arc::new(Patterns::new([])));
        Self { vault, answers, requests, nothing, text, text_secrets, bound, decoded }
    }

    /// What answers are scrubbed of.
    pub(super) fn answers(&self) -> Arc<Patterns> {
        Arc::clone(&self.answers)
    }

    /// What requests are watched for; [`Self::watched`] tells what a find is.
    pub(super) fn requests(&self) -> Arc<Patterns> {
        Arc::clone(&self.requests)
    }

    /// What is swapped in text messages of a container.
    pub(super) fn text(&self) -> Arc<Patterns> {
        Arc::clone(&self.text)
    }

    pub(super) fn nothing(&self) -> Arc<Patterns> {
        Arc::clone(&self.nothing)
    }

    pub(super) fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    pub(super) fn watched(&self, owner: usize) -> Option<Watched<'_>> {
        self.vault.watched(owner)
    }

    /// The account of that secret, as it was when the request was judged.
    pub(super) fn account(&self, secret: &str) -> Option<&Account> {
        self.vault.secret(secret)?.account().map(|account| &**account)
    }

    /// Whether WebSockets are read frame by frame; without any secret there is nothing to look for.
    pub(super) fn of_frames(&self) -> bool {
        !self.requests.is_empty() || !self.answers.is_empty()
    }

    /// Whether a header of an answer holds anything that it is scrubbed of.
    pub(super) fn are_for(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        self.answers.are_in(value.as_bytes()) || self.real_value_in_header(name, value)
    }

    pub(super) fn real_value_in_header(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        self.real_value_in(name.as_str().as_bytes()) || self.real_value_in(value.as_bytes())
    }

    /// In any form that is looked for in heads.
    pub(super) fn real_value_in(&self, text: &[u8]) -> bool {
        self.vault.real_value_in(text).is_some()
    }
}

#[cfg(test)]
impl Searches {
    /// Of a plain request with these grants.
    pub(super) fn of_host(vault: Vault, granted: &[&str], host: &str) -> Self {
        let (host, headers) = (host.parse().unwrap(), http::HeaderMap::new());
        let (method, uri) = (http::Method::GET, http::Uri::from_static("/"));
        let head =
            RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
        let (grants, holdings) = (granted.iter().copied().collect(), Holdings::default());
        Self::new(Arc::new(vault), &grants, (&holdings, &MintedNow::default()), head, &[])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use http::{HeaderMap, Method, Uri};

    use super::*;
    use crate::credentials::fixture::{Values, vault};
    use crate::credentials::{Minting, Swaps};

    /// Of Docker Hub, which has its tokens at another host than its images.
    #[test]
    fn a_host_that_gets_what_was_minted_must_be_readable() {
        let text = "[hub]\nlike = \"container-registry\"\nfile = \"/run/secrets/hub\"\nhosts = [\"auth.docker.io\"]\n\
                    grant-to = { harnesses = [\"generic\"] }\n";
        let vault = Arc::new(vault(text, &Values::from([("hub", "0123456789abcdefghij")])));
        let (grants, holdings): (Grants, _) = (["hub"].into_iter().collect(), Holdings::default());
        let bound = |host: &str| {
            let (host, uri) = (host.parse().unwrap(), Uri::from_static("/"));
            let (method, headers) = (Method::GET, HeaderMap::new());
            let head = RequestHead {
                host: &host,
                method: &method,
                verified_tls: true,
                uri: &uri,
                headers: &headers,
            };
            let minted = holdings.minted(Instant::now());
            Searches::new(Arc::clone(&vault), &grants, (&holdings, &minted), head, &[]).bound
        };
        assert_eq!(["auth.docker.io", "registry-1.docker.io"].map(bound), [true, false]);
        let swaps = Swaps { secrets: vec!["hub".to_owned()], ..Swaps::default() };
        let (host, minted) = ("auth.docker.io".parse().unwrap(), MintedNow::default());
        let minting = Minting::of(&vault, &host, &Method::GET, "/token", &swaps, &minted).unwrap();
        let answer = b"{\"token\":\"a-token-of-the-hub-0123456789\"}";
        minting.settle(&vault, &holdings, answer, Instant::now()).unwrap();
        assert_eq!(["registry-1.docker.io", "other.docker.io"].map(bound), [true, false]);
    }
}
