//! What a refused request is answered with: short, for people and for agents. Pure.

mod aws;
mod errors;

use http::{HeaderMap, header};
use pingora_http::RequestHeader;
use serde_json::json;

use crate::credentials::assertions::Api;
use crate::reason::Reason;

#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    pub(super) reason: Option<Reason>,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) container: String,
    pub(super) policy: String,
    pub(super) rule: Option<String>,
    /// The particular fault, in words, without any value of the request.
    pub(super) detail: Option<String>,
    /// What the operator would run or write.
    pub(super) remedy: Option<String>,
    /// Whose clients read it.
    pub(super) api: Option<Api>,
    /// Whether only clients of AWS have business there, signed or not.
    pub(super) aws: bool,
}

pub(super) struct Rendered {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Page {
    pub(super) fn render(&self, request: &RequestHeader) -> Rendered {
        let reason = self.reason.unwrap_or(Reason::Internal);
        if let Some(form) = aws::form(request, self.aws) {
            let (content_type, body) = form.render(reason, &self.message(reason));
            return Rendered { status: reason.status(), content_type, body };
        }
        if let Some(api) = self.api {
            let body = errors::body(api, reason, &self.message(reason));
            return Rendered { status: reason.status(), content_type: "application/json", body };
        }
        let request = &request.headers;
        let (content_type, body) = if wants_json(request) {
            ("application/json", self.json(reason))
        } else {
            ("text/plain; charset=utf-8", self.text(reason))
        };
        Rendered { status: reason.status(), content_type, body }
    }

    /// All that matters, in one line.
    fn message(&self, reason: Reason) -> String {
        let detail = self.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        format!(
            "understudy: {}:{}: {}{detail}. reason: {}. operator: {}",
            self.host,
            self.port,
            sentence(reason),
            reason.code(),
            self.remedy(reason)
        )
    }

    fn text(&self, reason: Reason) -> String {
        let mut text = format!("understudy: {}:{}: {}\n", self.host, self.port, sentence(reason));
        if let Some(detail) = &self.detail {
            text.push_str(&format!("detail: {detail}\n"));
        }
        text.push_str(&format!(
            "reason: {}\ncontainer: {}\npolicy: {}",
            reason.code(),
            self.container,
            self.policy
        ));
        if let Some(rule) = &self.rule {
            text.push_str(&format!(" ({rule})"));
        }
        text.push('\n');
        text.push_str(&format!("operator: {}\n", self.remedy(reason)));
        text
    }

    /// With the names of this request in what is to be typed.
    fn remedy(&self, reason: Reason) -> String {
        let said = self.remedy.as_deref().unwrap_or_else(|| remedy(reason));
        let said = said.replace("--container NAME", &format!("--container {}", self.container));
        let said = said.replace("explain URL", &format!("explain https://{}:{}/", self.host, self.port));
        let said = said.replace("host = \"HOST\"", &format!("host = {:?}", self.host));
        said.replace("port = PORT", &format!("port = {}", self.port))
    }

    fn json(&self, reason: Reason) -> String {
        let error = json!({
            "type": reason.code(),
            "message": format!("understudy: {}:{}: {}", self.host, self.port, sentence(reason)),
            "detail": self.detail,
            "host": self.host,
            "port": self.port,
            "container": self.container,
            "policy": self.policy,
            "rule": self.rule,
            "operator": self.remedy(reason),
        });
        format!("{}\n", json!({ "error": error }))
    }
}

/// Anything but JSON is asked for: text. What API clients send as a matter of course is `application/json`, alone or first.
fn wants_json(request: &HeaderMap) -> bool {
    let accept = request.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for media in accept.flat_map(|value| value.split(',')) {
        let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media.as_str() {
            "application/json" => return true,
            "text/html" | "text/plain" => return false,
            other if other.ends_with("+json") => return true,
            _ => {}
        }
    }
    false
}

/// Whose decision or fault it is, in a sentence that an agent can act on.
fn sentence(reason: Reason) -> &'static str {
    match reason {
        Reason::HostNotAllowed => "refused by policy: no rule allows this host. Trying again will not help",
        Reason::PortNotAllowed => "refused by policy: this host is allowed, but not on this port",
        Reason::MethodNotAllowed => "refused by policy: this host is allowed, but not with this method",
        Reason::PathNotAllowed => "refused by policy: this host is allowed, but not this path or query",
        Reason::PathAmbiguous => "refused: servers differ in how they read this path, and policy asks for it",
        Reason::DeniedByRule => "refused by policy: a rule denies this request. Trying again will not help",
        Reason::PolicyFailed => "refused: the container's policy could not be loaded, so it allows nothing",
        Reason::AddressLiteral => {
            "refused: connect by a host name; addresses that were not looked up are not reachable"
        }
        Reason::NameMismatch => "refused: the request names another host than its connection was made for",
        Reason::NameMissing => "refused: the connection names no host",
        Reason::Malformed => "refused: the request is not well-formed",
        Reason::ProtocolNotAllowed => "refused by policy: no rule allows what is neither HTTP nor HTTPS here",
        Reason::HandshakeFailed => "refused: the TLS handshake did not come to an end",
        Reason::Timeout => "refused: too little arrived in time",
        Reason::DirectConnection => "refused: this is not a server",
        Reason::ProxyRequest => {
            "refused: no proxy is needed here. CONNECT is taken once, over plain HTTP and as a connection's first request; \
             other hosts by `http://` outside of a tunnel"
        }
        Reason::UpgradeNotAllowed => {
            "refused by policy: no rule lets a connection switch to this protocol; WebSockets need none"
        }
        Reason::TraceMethod => "refused: TRACE echoes the request, credentials and all",
        Reason::RequestTrailers => {
            "refused: trailers of a request cannot be passed on; send what they say in headers, or in the body"
        }
        Reason::LimitReached => {
            "refused: this container has reached a limit of its policy. Trying again will not help"
        }
        Reason::RateLimited => "refused by policy: too often; try again later",
        Reason::Overloaded => "refused: too many at once from this container; try again later",
        Reason::Revoked => "refused: the operator has revoked this container",
        Reason::ForeignCredential => {
            "refused: a credential that is not a stand-in, at a host that a secret is bound to"
        }
        Reason::CredentialNotGranted => "refused: the stand-in's secret is not granted to this container",
        Reason::CredentialMisdirected => {
            "refused: a stand-in on its way to a host that its secret is not for"
        }
        Reason::CredentialMisplaced => {
            "refused: a stand-in in a place of the request that its secret is not for"
        }
        Reason::CredentialRestricted => {
            "refused: a stand-in with a method, for a path or for a service that its secret is not for"
        }
        Reason::NotSigned => "refused: this host takes only requests that are signed with a stand-in",
        Reason::SigningUnsupported => "refused: this way of signing a request is not supported",
        Reason::BodyTooLarge => {
            "refused: a body with a field for a credential is read whole, and this one is too large"
        }
        Reason::BodyEncoded => {
            "refused: a body with a field for a credential, in a Content-Encoding that cannot be undone"
        }
        Reason::BodyUndeclared => {
            "refused: this endpoint reads credentials from bodies, and nobody looks into one of this type"
        }
        Reason::RealCredential => "refused: the request holds a real credential",
        Reason::CredentialInClear => "refused: a stand-in over a connection without TLS",
        Reason::CredentialMinting => {
            "refused: this endpoint creates or stores credentials, which no secret is allowed to do here"
        }
        Reason::CredentialUnavailable => {
            "the ssh-agent that keeps the real key did not sign; nothing was sent"
        }
        Reason::LoginNeeded => {
            "the provider ended the account's login. Trying again will not help: the operator must log in again"
        }
        Reason::PrivateAddress => "refused: this name leads to a private or otherwise special address",
        Reason::NameNotFound => {
            "the sidecar cannot resolve this name; neither the request nor policy is at fault"
        }
        Reason::UpstreamFailed => "the server cannot be reached or broke off; policy allows this request",
        Reason::UpstreamProxyFailed => {
            "the operator's own proxy, by which the sidecar leaves, is at fault; neither the request nor the server is"
        }
        Reason::UpstreamUntrusted => "the server's certificate does not verify; nothing was sent to it",
        Reason::UpstreamTimeout => "the server did not answer in time; policy allows this request",
        Reason::UnreadableAnswer => {
            "the answer of this host cannot be searched for real credentials, so it is not passed on"
        }
        Reason::Internal => "a fault of the sidecar itself; nothing was sent",
    }
}

/// What the operator would run or write, where nobody said it of this very request.
fn remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::HostNotAllowed
        | Reason::PortNotAllowed
        | Reason::MethodNotAllowed
        | Reason::PathNotAllowed
        | Reason::PathAmbiguous
        | Reason::DeniedByRule
        | Reason::RateLimited => "see what decides with: understudy explain URL --container NAME",
        Reason::PolicyFailed => "see what is wrong with: understudy check",
        Reason::AddressLiteral => {
            "a name is needed: pin one to the address in sidecar.toml, as [names] \"x.example\" = \"ADDRESS\", and allow it with: \
             understudy allow x.example --container NAME"
        }
        Reason::ProtocolNotAllowed => "add to a policy: [[allow]] host = \"HOST\", port = PORT, tcp = true",
        Reason::UpgradeNotAllowed => {
            "where nobody has to see what is inside, name the one protocol in the rule: `upgrade = \"NAME\"`"
        }
        Reason::NameMismatch
        | Reason::NameMissing
        | Reason::Malformed
        | Reason::ProxyRequest
        | Reason::TraceMethod
        | Reason::RequestTrailers
        | Reason::DirectConnection
        | Reason::Timeout => {
            "nothing allows it; the request has to be another. See it with: understudy log --container NAME --denied"
        }
        Reason::HandshakeFailed => {
            "if the program pins certificates, add to a policy: [[allow]] host = \"HOST\", splice = true"
        }
        Reason::Overloaded => "see what is open with: understudy status",
        Reason::LimitReached => "start a new container, or change the limits of its policy",
        Reason::Revoked => "it stays revoked: remove the container, and create a new one",
        Reason::ForeignCredential => "declare it as a secret: understudy secrets add NAME --like KIND",
        Reason::CredentialNotGranted => {
            "grant it by `grant-to` in secrets.toml and the annotation understudy.secrets; see it with: understudy secrets"
        }
        Reason::CredentialMisdirected | Reason::CredentialMisplaced | Reason::CredentialRestricted => {
            "change `hosts`, `placements`, `methods`, `paths`, `services`, `regions` or `buckets` of the secret in secrets.toml; see them with: understudy secrets"
        }
        Reason::NotSigned => {
            "nothing allows it but `foreign = \"allow\"` of the secret in secrets.toml; sign with the key that the container was given"
        }
        Reason::SigningUnsupported => "nothing allows it; change how the client signs (docs/aws.md)",
        Reason::BodyTooLarge => "send less, or change `max-body` of the rule that allows it",
        Reason::BodyEncoded => {
            "nothing allows it; send the body without Content-Encoding, or in one of gzip, deflate, br, zstd"
        }
        Reason::BodyUndeclared => "nothing allows it; send the body in a type that the endpoint documents",
        Reason::RealCredential => {
            "nothing allows it; find out where it came from, and take it back at its provider"
        }
        Reason::CredentialInClear => "nothing allows it; use https",
        Reason::CredentialMinting => "allow it by `minting` of the secret in secrets.toml",
        Reason::CredentialUnavailable => {
            "start the ssh-agent that secrets.toml names, and add the key on the host: ssh-add"
        }
        Reason::LoginNeeded => "log in again, and take it over with: understudy login import",
        Reason::PrivateAddress => {
            "for an address of a private network, write `private = true` into the rule; for one of the sidecar's own machine, pin the name in \
             sidecar.toml, as [names] \"HOST\" = \"ADDRESS\" (its `metrics` and `publish` ports stay closed)"
        }
        Reason::NameNotFound => "check the name, and `resolvers` in sidecar.toml",
        Reason::UpstreamUntrusted => "if it is yours, name its authority by `extra-ca` in sidecar.toml",
        Reason::UpstreamProxyFailed => "check [upstream-proxy] in sidecar.toml",
        Reason::UpstreamFailed | Reason::UpstreamTimeout => "nothing has to be allowed; try again later",
        Reason::UnreadableAnswer => {
            "nothing allows it; see the line with: understudy log --container NAME --denied"
        }
        Reason::Internal => "see the sidecar's log, and report it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page {
            reason: Some(Reason::HostNotAllowed),
            host: "evil.example".to_owned(),
            port: 443,
            container: "agent".to_owned(),
            policy: "harness-only".to_owned(),
            rule: Some("web.toml:3".to_owned()),
            detail: None,
            remedy: Some("add [[allow]] host = \"evil.example\"".to_owned()),
            api: None,
            aws: false,
        }
    }

    fn plain() -> RequestHeader {
        RequestHeader::build("GET", b"/", None).unwrap()
    }

    fn accept(value: &str) -> RequestHeader {
        let mut request = plain();
        request.insert_header(header::ACCEPT, value).unwrap();
        request
    }

    #[test]
    fn people_get_lines_with_all_that_matters() {
        let page = page().render(&plain());
        assert_eq!((page.status, page.content_type), (403, "text/plain; charset=utf-8"));
        assert_eq!(
            page.body,
            "understudy: evil.example:443: refused by policy: no rule allows this host. Trying again will not help\n\
             reason: host-not-allowed\ncontainer: agent\npolicy: harness-only (web.toml:3)\n\
             operator: add [[allow]] host = \"evil.example\"\n"
        );
    }

    #[test]
    fn every_reason_is_one_sentence_and_says_what_would_allow_it() {
        let mut sentences = std::collections::BTreeSet::new();
        for reason in Reason::ALL {
            let page = Page { reason: Some(*reason), remedy: None, ..page() };
            let text = page.render(&plain()).body;
            assert!(sentences.insert(sentence(*reason)), "{reason:?} says what another one says");
            assert_eq!(text.matches("reason: ").count(), 1, "{text}");
            assert!(text.contains(&format!("\nreason: {}\n", reason.code())), "{text}");
            let remedy = text.lines().last().unwrap().strip_prefix("operator: ").unwrap();
            assert!(remedy.len() > 20, "{text}");
            // A command, a file or key to change, or that there is none.
            let helps = ["understudy ", ".toml", "policy", "rule", "nothing ", "remove the container", "log"];
            assert!(helps.iter().any(|word| remedy.contains(word)), "{text}");
            let json = page.render(&accept("application/json")).body;
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(
                (&json["error"]["type"], &json["error"]["operator"]),
                (&reason.code().into(), &remedy.into())
            );
        }
    }

    #[test]
    fn what_is_to_be_typed_names_this_container_and_host() {
        let said = |remedy: Option<&str>, reason| {
            let page = Page { reason: Some(reason), remedy: remedy.map(str::to_owned), ..page() };
            page.render(&plain()).body.lines().last().unwrap().to_owned()
        };
        assert_eq!(
            said(Some("run `understudy allow evil.example --container NAME`"), Reason::HostNotAllowed),
            "operator: run `understudy allow evil.example --container agent`"
        );
        assert!(
            said(None, Reason::PathNotAllowed)
                .ends_with("understudy explain https://evil.example:443/ --container agent")
        );
    }

    #[test]
    fn programs_get_json_if_they_ask_first() {
        for json in
            ["application/json", "Application/JSON; q=1", "application/vnd.api+json", "*/*, application/json"]
        {
            let page = page().render(&accept(json));
            assert_eq!(page.content_type, "application/json", "{json}");
            let body: serde_json::Value = serde_json::from_str(&page.body).unwrap();
            assert_eq!(body["error"]["type"], "host-not-allowed");
            assert_eq!(body["error"]["host"], "evil.example");
            assert_eq!(body["error"]["container"], "agent");
        }
        for text in ["*/*", "text/html,application/json", "text/plain", "image/png"] {
            assert_eq!(page().render(&accept(text)).content_type, "text/plain; charset=utf-8", "{text}");
        }
    }
}
