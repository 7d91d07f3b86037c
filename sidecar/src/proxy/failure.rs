//! Whose fault a failed exchange is, from pingora's error. Pure.

use pingora_error::{Error, ErrorSource, ErrorType};

use super::dial::OWN_ADDRESS;
use crate::reason::Reason;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// In words of ours: pingora's may hold parts of the request.
    pub(super) detail: String,
    /// The container's side ended it, so there is nobody to tell.
    pub(super) client_gone: bool,
}

pub(super) fn failure(error: &Error) -> Failure {
    let detail = error.root_etype().as_str().to_owned();
    let with = |reason| Failure { reason, detail: detail.clone(), client_gone: false };
    match (error.esource(), error.root_etype()) {
        (ErrorSource::Downstream, kind) => Failure {
            reason: Reason::Malformed,
            client_gone: matches!(
                kind,
                ErrorType::ReadError
                    | ErrorType::WriteError
                    | ErrorType::ConnectionClosed
                    | ErrorType::H2Error
                    | ErrorType::ReadTimedout
                    | ErrorType::WriteTimedout
            ),
            detail,
        },
        (ErrorSource::Upstream, ErrorType::TLSHandshakeFailure) => match certificate_fault(error) {
            Some(fault) => Failure { detail: fault, ..with(Reason::UpstreamUntrusted) },
            None => with(Reason::UpstreamFailed),
        },
        (ErrorSource::Upstream, ErrorType::InvalidCert) => with(Reason::UpstreamUntrusted),
        // Ours, of the dialler.
        (ErrorSource::Upstream, ErrorType::Custom(what)) if *what == OWN_ADDRESS => {
            with(Reason::PrivateAddress)
        }
        (ErrorSource::Upstream, ErrorType::Custom(_)) => with(Reason::UpstreamProxyFailed),
        (ErrorSource::Upstream, ErrorType::CustomCode(what, status)) => {
            Failure { detail: format!("{what} ({status})"), ..with(Reason::UpstreamProxyFailed) }
        }
        (
            ErrorSource::Upstream,
            ErrorType::ConnectTimedout | ErrorType::ReadTimedout | ErrorType::TLSHandshakeTimedout,
        ) => with(Reason::UpstreamTimeout),
        (ErrorSource::Upstream, _) => with(Reason::UpstreamFailed),
        (ErrorSource::Internal | ErrorSource::Unset, _) => with(Reason::Internal),
    }
}

/// rustls' words for it, such as `invalid peer certificate: UnknownIssuer`. pingora passes them on as text only.
fn certificate_fault(error: &Error) -> Option<String> {
    const MARK: &str = "invalid peer certificate: ";
    let text = error.to_string();
    let start = text.find(MARK)?;
    let fault: String = text.get(start..)?.chars().take(200).collect();
    let fault = fault.split(", SNI: ").next().unwrap_or_default();
    Some(fault.split(" cause: ").next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_told_from_other_handshake_faults() {
        let of = |context: &'static str| {
            failure(&Error::explain(ErrorType::TLSHandshakeFailure, context).into_up())
        };
        let untrusted =
            of("TLS connect() failed: x cause: invalid peer certificate: UnknownIssuer, SNI: a.example");
        assert_eq!(untrusted.reason, Reason::UpstreamUntrusted);
        assert_eq!(untrusted.detail, "invalid peer certificate: UnknownIssuer");
        assert_eq!(of("tls handshake eof").reason, Reason::UpstreamFailed);
    }

    #[test]
    fn nothing_of_the_request_is_told() {
        let error = Error::explain(ErrorType::ReadError, "GET /?key=sk-secret HTTP/1.1");
        for error in [error.into_up(), Error::explain(ErrorType::ReadError, "sk-secret").into_down()] {
            assert!(!failure(&error).detail.contains("sk-secret"));
        }
    }
}
