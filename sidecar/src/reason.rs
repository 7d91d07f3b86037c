//! Every reason for not doing what a container asked for, shared by audit, counters and pages.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No rule allows the host.
    HostNotAllowed,
    /// A rule allows the host, but not on this port.
    PortNotAllowed,
    /// Rules allow host and port, but not with this method.
    MethodNotAllowed,
    /// Rules allow host, port and method, but not this path or query.
    PathNotAllowed,
    /// A rule asks for a path, and servers may read this one differently.
    PathAmbiguous,
    /// A `[[deny]]` rule matches.
    DeniedByRule,
    /// The container's policy could not be loaded, so it allows nothing.
    PolicyFailed,
    /// The destination is an address that no name was looked up for.
    AddressLiteral,
    /// SNI, Host or :authority differ from the name that was looked up or from each other.
    NameMismatch,
    /// TLS without SNI.
    NameMissing,
    /// A name or message that is not well-formed.
    Malformed,
    /// The client gave up on TLS: it does not trust the authority, or shares no protocol with us.
    HandshakeFailed,
    /// Neither TLS nor HTTP.
    ProtocolNotAllowed,
    /// Nothing, or too little, arrived in time.
    Timeout,
    /// A connection to the listener itself that was not redirected to it.
    DirectConnection,
    /// CONNECT, an absolute-form request for another host, or an upgrade that is not a WebSocket.
    ProxyRequest,
    /// TRACE, or one that does the same.
    TraceMethod,
    /// Announced trailers, which the engine would lose.
    RequestTrailers,
    /// A limit on connections or names was reached.
    Overloaded,
    /// More requests in a time than the rules that allow them say.
    RateLimited,
    /// The container has done as much as its policies let it do in all.
    LimitReached,
    /// The operator revoked the container.
    Revoked,
    /// A credential that is neither a stand-in nor minted, on its way to a host that a secret is bound to.
    ForeignCredential,
    /// A stand-in of a secret that was not granted to this container.
    CredentialNotGranted,
    /// A stand-in on its way to a host that its secret is not bound to.
    CredentialMisdirected,
    /// A stand-in at a host of its secret, in a place that its secret is not bound to.
    CredentialMisplaced,
    /// A stand-in in its place, with a method or for a path that its secret is not for.
    CredentialRestricted,
    /// A body that has a field for a credential, and is too large to be read before it is sent.
    BodyTooLarge,
    /// Such a body that is compressed.
    BodyEncoded,
    /// A body of a type that no placement is about, at an endpoint that reads credentials from bodies.
    BodyUndeclared,
    /// A real credential in a request of the container.
    RealCredential,
    /// A stand-in over a connection that is not verified TLS.
    CredentialInClear,
    /// A request to an endpoint that creates or stores credentials, and that no secret's `minting` allows.
    CredentialMinting,
    /// The provider ended the login of an account: only another login helps.
    LoginNeeded,
    /// The name resolves to a private, loopback, link-local or otherwise special address.
    PrivateAddress,
    /// The name does not resolve.
    NameNotFound,
    /// The upstream cannot be reached, or broke off.
    UpstreamFailed,
    /// The operator's proxy on the way to the upstream cannot be reached or refused.
    UpstreamProxyFailed,
    /// The upstream's certificate does not verify.
    UpstreamUntrusted,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The upstream's answer could hold a real credential and cannot be searched for it.
    UnreadableAnswer,
    /// A fault of the sidecar itself.
    Internal,
}

impl Reason {
    /// The name in audit lines and pages, such as `host-not-allowed`.
    pub fn code(self) -> &'static str {
        match self {
            Self::HostNotAllowed => "host-not-allowed",
            Self::PortNotAllowed => "port-not-allowed",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::PathNotAllowed => "path-not-allowed",
            Self::PathAmbiguous => "path-ambiguous",
            Self::DeniedByRule => "denied-by-rule",
            Self::PolicyFailed => "policy-failed",
            Self::AddressLiteral => "address-literal",
            Self::NameMismatch => "name-mismatch",
            Self::NameMissing => "name-missing",
            Self::Malformed => "malformed",
            Self::HandshakeFailed => "handshake-failed",
            Self::ProtocolNotAllowed => "protocol-not-allowed",
            Self::Timeout => "timeout",
            Self::DirectConnection => "direct-connection",
            Self::ProxyRequest => "proxy-request",
            Self::TraceMethod => "trace-method",
            Self::RequestTrailers => "request-trailers",
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate-limited",
            Self::LimitReached => "limit-reached",
            Self::Revoked => "revoked",
            Self::ForeignCredential => "foreign-credential",
            Self::CredentialNotGranted => "credential-not-granted",
            Self::CredentialMisdirected => "credential-misdirected",
            Self::CredentialMisplaced => "credential-misplaced",
            Self::CredentialRestricted => "credential-restricted",
            Self::BodyTooLarge => "body-too-large",
            Self::BodyEncoded => "body-encoded",
            Self::BodyUndeclared => "body-undeclared",
            Self::RealCredential => "real-credential",
            Self::CredentialInClear => "credential-in-clear",
            Self::CredentialMinting => "credential-minting",
            Self::LoginNeeded => "login-needed",
            Self::PrivateAddress => "private-address",
            Self::NameNotFound => "name-not-found",
            Self::UpstreamFailed => "upstream-failed",
            Self::UpstreamProxyFailed => "upstream-proxy-failed",
            Self::UpstreamUntrusted => "upstream-untrusted",
            Self::UpstreamTimeout => "upstream-timeout",
            Self::UnreadableAnswer => "unreadable-answer",
            Self::Internal => "internal",
        }
    }

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
            | Self::UnreadableAnswer => 502,
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
    fn the_code_is_the_serialised_name() {
        for reason in [
            Reason::HostNotAllowed,
            Reason::PathAmbiguous,
            Reason::CredentialInClear,
            Reason::UpstreamUntrusted,
        ] {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.code());
        }
    }
}
