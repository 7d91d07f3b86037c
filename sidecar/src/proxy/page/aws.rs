//! A refusal as clients of AWS read one, so that they show what it says. Pure.

use http::{HeaderMap, header};
use pingora_http::RequestHeader;
use serde_json::json;
use understudy_sigv4::{Request, is_signed, service};

use crate::reason::Reason;

/// How a service tells its errors (Smithy's protocols).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Amazon S3's: the error alone.
    Xml,
    /// AWS Query's, EC2's, and those of the other services that speak XML.
    Wrapped,
    Json,
}

/// None: it is no such client. `expected`: it is one even if it has signed nothing.
pub(super) fn form(request: &RequestHeader, expected: bool) -> Option<Form> {
    let (uri, headers) = (&request.uri, &request.headers);
    let query = uri.query().unwrap_or_default();
    let request = Request { method: request.method.as_str(), path: uri.path(), query, host: "", headers };
    if !expected && !is_signed(&request) {
        return None;
    }
    Some(match service(&request).as_deref() {
        Some("s3" | "s3express" | "s3-outposts" | "s3-object-lambda") => Form::Xml,
        // All of them answer in XML, whatever they are asked in.
        Some("ec2" | "sts" | "iam" | "cloudfront" | "route53" | "sqs" | "sns") if !speaks_json(headers) => {
            Form::Wrapped
        }
        _ if speaks_json(headers) => Form::Json,
        _ if stated(headers).starts_with("application/x-www-form-urlencoded") => Form::Wrapped,
        None => Form::Xml,
        Some(_) => Form::Json,
    })
}

impl Form {
    /// With its type.
    pub(super) fn render(self, reason: Reason, message: &str) -> (&'static str, String) {
        let code = code(reason);
        match self {
            Self::Json => {
                let error = json!({ "__type": code, "code": code, "message": message });
                ("application/json", format!("{error}\n"))
            }
            Self::Xml => (
                "application/xml",
                format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{}</Message></Error>\n",
                    escaped(message)
                ),
            ),
            Self::Wrapped => (
                "text/xml",
                format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{}</Message></Error></ErrorResponse>\n",
                    escaped(message)
                ),
            ),
        }
    }
}

/// Clients try some codes again, and these are not among them; a status of a fault on the way they do.
fn code(reason: Reason) -> &'static str {
    match reason {
        Reason::NotSigned => "SignatureDoesNotMatch",
        Reason::SigningUnsupported => "NotImplemented",
        _ => "AccessDenied",
    }
}

fn stated(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn speaks_json(headers: &HeaderMap) -> bool {
    let stated = stated(headers);
    headers.contains_key("x-amz-target")
        || stated.starts_with("application/x-amz-json")
        || stated.starts_with("application/json")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_is_answered_as_it_answers() {
        let of = |service: &str, more: &[(&'static str, &str)]| {
            let mut request = RequestHeader::build("POST", b"/", None).unwrap();
            let credential = format!("AKIDEXAMPLE/20150830/us-east-1/{service}/aws4_request");
            let signature = "5d".repeat(32);
            let authorization = format!(
                "AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature={signature}"
            );
            request.insert_header("authorization", authorization).unwrap();
            request.insert_header("x-amz-date", "20150830T123600Z").unwrap();
            for (name, value) in more {
                request.insert_header(*name, *value).unwrap();
            }
            form(&request, false)
        };
        assert_eq!(of("s3", &[("content-type", "application/json")]), Some(Form::Xml));
        assert_eq!(of("sts", &[("content-type", "application/x-www-form-urlencoded")]), Some(Form::Wrapped));
        assert_eq!(of("ec2", &[]), Some(Form::Wrapped));
        assert_eq!(
            of("monitoring", &[("content-type", "application/x-www-form-urlencoded; charset=utf-8")]),
            Some(Form::Wrapped)
        );
        assert_eq!(of("dynamodb", &[("x-amz-target", "DynamoDB_20120810.ListTables")]), Some(Form::Json));
        assert_eq!(of("lambda", &[]), Some(Form::Json));
        let mut other = RequestHeader::build("GET", b"/?a=b", None).unwrap();
        other.insert_header("authorization", "Bearer x").unwrap();
        assert_eq!(form(&other, false), None);
    }

    #[test]
    fn what_is_not_signed_at_all_is_told_by_what_it_says_of_itself() {
        for (name, value, form) in [
            ("accept", "*/*", Form::Xml),
            ("content-type", "application/octet-stream", Form::Xml),
            ("content-type", "application/x-amz-json-1.1", Form::Json),
            ("content-type", "application/json", Form::Json),
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8", Form::Wrapped),
            ("x-amz-target", "DynamoDB_20120810.ListTables", Form::Json),
        ] {
            let mut request = RequestHeader::build("POST", b"/bucket/key", None).unwrap();
            request.insert_header(name, value).unwrap();
            assert_eq!(super::form(&request, true), Some(form), "{name}: {value}");
        }
    }

    #[test]
    fn what_it_says_is_escaped() {
        let (_, text) = Form::Xml.render(Reason::NotSigned, "a <b> & c");
        assert!(
            text.contains("<Code>SignatureDoesNotMatch</Code><Message>a &lt;b&gt; &amp; c</Message>"),
            "{text}"
        );
        let (_, text) = Form::Wrapped.render(Reason::HostNotAllowed, "x");
        assert!(
            text.contains("<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"),
            "{text}"
        );
        let (_, text) = Form::Json.render(Reason::HostNotAllowed, "a \"b\"");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["__type"], &json["message"]), (&"AccessDenied".into(), &"a \"b\"".into()));
    }
}
