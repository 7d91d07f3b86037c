//! Every reason for not doing what a container asked for, shared by audit, counters and pages.

use serde::{Deserialize, Serialize};

/// The enum, its list and its names from one table, so that none can be left out anywhere.
macro_rules! reasons {
    ($($(#[$about:meta])* $reason:ident = $code:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Reason {
            $($(#[$about])* $reason,)*
        }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$reason),*];

            /// The name in audit lines and pages, such as `host-not-allowed`.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$reason => $code,)*
                }
            }
        }
    };
}

reasons! {
    /// No rule allows the host.
    HostNotAllowed = "host-not-allowed",
    /// A rule allows the host, but not on this port.
    PortNotAllowed = "port-not-allowed",
    /// Rules allow host and port, but not with this method.
    MethodNotAllowed = "method-not-allowed",
    /// Rules allow host, port and method, but not this path or query.
    PathNotAllowed = "path-not-allowed",
    /// A rule asks for a path, and servers may read this one differently.
    PathAmbiguous = "path-ambiguous",
    /// A `[[deny]]` rule matches.
    DeniedByRule = "denied-by-rule",
    /// The container's policy could not be loaded, so it allows nothing.
    PolicyFailed = "policy-failed",
    /// The destination is an address that no name was looked up for.
    AddressLiteral = "address-literal",
    /// SNI, Host or :authority differ from the name that was looked up or from each other.
    NameMismatch = "name-mismatch",
    /// TLS without SNI.
    NameMissing = "name-missing",
    /// A name or message that is not well-formed.
    Malformed = "malformed",
    /// The client gave up on TLS: it does not trust the authority, or shares no protocol with us.
    HandshakeFailed = "handshake-failed",
    /// Neither TLS nor HTTP.
    ProtocolNotAllowed = "protocol-not-allowed",
    /// Nothing, or too little, arrived in time.
    Timeout = "timeout",
    /// A connection to the listener itself that was not redirected to it.
    DirectConnection = "direct-connection",
    /// CONNECT, or an absolute-form request for another host.
    ProxyRequest = "proxy-request",
    /// To switch the connection to a protocol that no rule names, or to one of several.
    UpgradeNotAllowed = "upgrade-not-allowed",
    /// TRACE, or one that does the same.
    TraceMethod = "trace-method",
    /// Announced trailers, which the engine would lose.
    RequestTrailers = "request-trailers",
    /// A limit on connections or names was reached.
    Overloaded = "overloaded",
    /// More requests in a time than the rules that allow them say.
    RateLimited = "rate-limited",
    /// The container has done as much as its policies let it do in all.
    LimitReached = "limit-reached",
    /// The operator revoked the container.
    Revoked = "revoked",
    /// A credential that is neither a stand-in nor minted, on its way to a host that a secret is bound to.
    ForeignCredential = "foreign-credential",
    /// A stand-in of a secret that was not granted to this container.
    CredentialNotGranted = "credential-not-granted",
    /// A stand-in on its way to a host that its secret is not bound to.
    CredentialMisdirected = "credential-misdirected",
    /// A stand-in at a host of its secret, in a place that its secret is not bound to.
    CredentialMisplaced = "credential-misplaced",
    /// A stand-in in its place, with a method or for a path that its secret is not for.
    CredentialRestricted = "credential-restricted",
    /// A request that is not signed with a stand-in, or not so, at a host of a key that signs.
    NotSigned = "not-signed",
    /// A signature that cannot be made again.
    SigningUnsupported = "signing-unsupported",
    /// A body that has a field for a credential, and is too large to be read before it is sent.
    BodyTooLarge = "body-too-large",
    /// Such a body in a coding that cannot be undone.
    BodyEncoded = "body-encoded",
    /// A body of a type that no placement is about, at an endpoint that reads credentials from bodies.
    BodyUndeclared = "body-undeclared",
    /// A real credential in a request of the container.
    RealCredential = "real-credential",
    /// A stand-in over a connection that is not verified TLS.
    CredentialInClear = "credential-in-clear",
    /// A request to an endpoint that creates or stores credentials, and that no secret's `minting` allows.
    CredentialMinting = "credential-minting",
    /// The ssh-agent that keeps the real key is not there, does not have it, or does not sign.
    CredentialUnavailable = "credential-unavailable",
    /// The provider ended the login of an account: only another login helps.
    LoginNeeded = "login-needed",
    /// The name resolves to a private, loopback, link-local or otherwise special address.
    PrivateAddress = "private-address",
    /// The name does not resolve.
    NameNotFound = "name-not-found",
    /// The upstream cannot be reached, or broke off.
    UpstreamFailed = "upstream-failed",
    /// The operator's proxy on the way to the upstream cannot be reached or refused.
    UpstreamProxyFailed = "upstream-proxy-failed",
    /// The upstream's certificate does not verify.
    UpstreamUntrusted = "upstream-untrusted",
    /// The upstream did not answer in time.
    UpstreamTimeout = "upstream-timeout",
    /// The upstream's answer could hold a real credential and cannot be searched for it.
    UnreadableAnswer = "unreadable-answer",
    /// A fault of the sidecar itself.
    Internal = "internal",
}

impl Reason {
    /// Whether a credential, or its stand-in, was on its way to where it must not go.
    pub fn is_leak(self) -> bool {
        matches!(
            self,
            Self::CredentialNotGranted
                | Self::CredentialMisdirected
                | Self::CredentialMisplaced
                | Self::RealCredential
                | Self::CredentialInClear
        )
    }

    /// The HTTP status of the page that tells it: RFC 9110 section 15.
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed | Self::PathAmbiguous | Self::NameMissing | Self::HandshakeFailed => 400,
            Self::LoginNeeded => 401,
            Self::NameMismatch => 421,
            Self::Timeout => 408,
            Self::BodyTooLarge => 413,
            Self::BodyEncoded | Self::BodyUndeclared => 415,
            Self::Overloaded | Self::RateLimited => 429,
            Self::NameNotFound
            | Self::UpstreamFailed
            | Self::UpstreamProxyFailed
            | Self::UpstreamUntrusted
            | Self::UnreadableAnswer
            | Self::CredentialUnavailable => 502,
            Self::UpstreamTimeout => 504,
            Self::Internal => 500,
            Self::RequestTrailers => 501,
            _ => 403,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_serialised_name_and_each_reason_has_its_own() {
        let codes: std::collections::BTreeSet<&str> =
            Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.code());
            assert!((400..600).contains(&reason.status()), "{reason:?}");
        }
    }

    #[test]
    fn the_documentation_names_every_one() {
        let documentation = include_str!("../../docs/audit.md");
        for reason in Reason::ALL {
            assert!(
                documentation.contains(&format!("`{}`", reason.code())),
                "{reason:?} is not in docs/audit.md"
            );
        }
    }
}
