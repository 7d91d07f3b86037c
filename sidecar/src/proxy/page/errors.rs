//! A refusal as clients of an API with tokens read one. Pure.

use serde_json::json;

use crate::credentials::assertions::Api;
use crate::reason::Reason;

pub(super) fn body(api: Api, reason: Reason, message: &str) -> String {
    let error = match api {
        // <https://google.aip.dev/193>
        Api::Google => {
            json!({ "error": { "code": reason.status(), "message": message, "status": "PERMISSION_DENIED" } })
        }
        // RFC 6749 section 5.2: clients do not try again after this one.
        Api::Token => json!({ "error": "invalid_grant", "error_description": message }),
        Api::GitHub => json!({ "message": message, "status": reason.status().to_string() }),
    };
    format!("{error}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_message_where_its_clients_look() {
        for (api, pointer) in
            [(Api::Google, "/error/message"), (Api::Token, "/error_description"), (Api::GitHub, "/message")]
        {
            let text = body(api, Reason::NotSigned, "a \"b\"");
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json.pointer(pointer).unwrap(), "a \"b\"", "{text}");
        }
    }
}
