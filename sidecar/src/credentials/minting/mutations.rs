//! Mutations of GraphQL that create or store credentials: the body of a request to a declared address is read for their
//! names, which GraphQL can write in one way only. Pure.

use std::fmt;

use http::header::{CONTENT_TYPE, UPGRADE};
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use understudy_policies::Readings;

use super::Switches;
use crate::credentials::body::{is_encoded, may_have_body};
use crate::credentials::catalogue::Mutation;
use crate::credentials::examine::{CredentialDenial, RequestHead, Swaps};
use crate::credentials::grants::Grants;
use crate::credentials::vault::Vault;
use crate::reason::Reason;

/// Whether the body must be read for them before anything is sent.
pub fn are_asked(
    vault: &Vault,
    grants: &Grants,
    head: &RequestHead<'_>,
    swaps: &Swaps,
) -> Result<bool, CredentialDenial> {
    let Some(refused) = Refused::of(vault, grants, head, swaps) else { return Ok(false) };
    // It must not mutate, but servers were seen to do it.
    let mut query = head.uri.query().unwrap_or_default().replace('+', " ");
    for _ in 0..3 {
        refused.check(&query)?;
        query = percent_decode_str(&query).decode_utf8_lossy().into_owned();
    }
    if head.headers.contains_key(UPGRADE) {
        let remedy = "ask by POST: in messages of a WebSocket, mutations that create credentials are not looked for; \
                      or allow what they create by `minting` of the secret";
        return Err(denial(Reason::CredentialMinting, "Upgrade", remedy));
    }
    if !may_have_body(head) {
        return Ok(false);
    }
    if is_encoded(head) {
        let remedy = "send the body in no other Content-Encoding than gzip, deflate, br or zstd: mutations that create credentials are looked for in it";
        return Err(denial(Reason::BodyEncoded, "body", remedy));
    }
    Ok(true)
}

/// Refuses a body that names one which no `minting` allows, or of which that cannot be told.
pub fn check_body(
    vault: &Vault,
    grants: &Grants,
    head: &RequestHead<'_>,
    swaps: &Swaps,
    body: &[u8],
) -> Result<(), CredentialDenial> {
    let Some(refused) = Refused::of(vault, grants, head, swaps) else { return Ok(()) };
    let is_document = head.headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/graphql")
    });
    if is_document {
        refused.check(&String::from_utf8_lossy(body))?;
    }
    match documents(body) {
        Ok(documents) => documents.iter().try_for_each(|document| refused.check(document)),
        Err(_) if is_document => Ok(()),
        Err(why) => {
            let remedy = format!(
                "{why}; send JSON with the whole document as `query`: mutations that create credentials are looked for in it"
            );
            Err(denial(Reason::Malformed, "body", &remedy))
        }
    }
}

fn denial(reason: Reason, place: &str, remedy: &str) -> CredentialDenial {
    CredentialDenial { reason, secret: None, place: place.to_owned(), remedy: remedy.to_owned() }
}

/// What this request may not ask for.
struct Refused<'v> {
    switches: Switches<'v>,
    mutations: Vec<&'v Mutation>,
    swaps: &'v Swaps,
}

impl<'v> Refused<'v> {
    /// None: nothing that could be asked for there is refused.
    fn of(vault: &'v Vault, grants: &'v Grants, head: &RequestHead<'v>, swaps: &'v Swaps) -> Option<Self> {
        let switches = Switches::of(vault, grants, head, swaps)?;
        let mut readings = None;
        let there = vault.catalogue().mutations_at(head.host, &switches.likes);
        let mutations: Vec<_> = there
            .filter(|mutation| {
                let readings = readings.get_or_insert_with(|| Readings::of(head.uri.path()));
                !switches.allow(mutation.creates)
                    && mutation.paths.iter().any(|path| path.matches_possibly(readings))
            })
            .collect();
        (!mutations.is_empty()).then_some(Self { switches, mutations, swaps })
    }

    fn check(&self, document: &str) -> Result<(), CredentialDenial> {
        let words = || document.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let mut named = self.mutations.iter().filter_map(|mutation| {
            let field = mutation.fields.iter().find(|field| words().any(|word| word == *field))?;
            Some((field, mutation.creates))
        });
        match named.next() {
            None => Ok(()),
            Some((field, creates)) => {
                Err(self.switches.denial(&format!("the mutation `{field}`"), creates, self.swaps))
            }
        }
    }
}

/// The documents of a request, or of several in one: whatever is called `query` in any letter case, as often as it is.
fn documents(body: &[u8]) -> Result<Vec<String>, &'static str> {
    let mut found = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = Requests(&mut found).deserialize(&mut json).and_then(|()| json.end());
    match read {
        Ok(()) => Ok(found),
        Err(error) if error.is_data() => Err("a request names no document"),
        Err(_) => Err("the body is no JSON"),
    }
}

/// One request, or a list of them.
struct Requests<'f>(&'f mut Vec<String>);

impl<'de> DeserializeSeed<'de> for Requests<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Requests<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        let before = self.0.len();
        while let Some(name) = members.next_key::<String>()? {
            if name.eq_ignore_ascii_case("query") {
                self.0.extend(members.next_value::<Option<String>>()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        // Of a document that the server keeps, only a name would be sent.
        if self.0.len() == before {
            return Err(serde::de::Error::custom("no document"));
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<(), S::Error> {
        while items.next_element_seed(Requests(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, Uri};

    use super::*;
    use crate::credentials::fixture::{Values, declared, vault};

    /// A token of GitHub's for a GraphQL of its own, that is declared in the catalogue.
    fn asked(
        more: &str,
        url: &'static str,
        kind: &'static str,
        body: &str,
    ) -> Result<bool, CredentialDenial> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        asked_with(more, (Method::POST, url), &headers, body)
    }

    fn asked_with(
        more: &str,
        (method, url): (Method, &'static str),
        headers: &HeaderMap,
        body: &str,
    ) -> Result<bool, CredentialDenial> {
        let text = declared("shop", more).replace("api.example.com", "shop.example.com");
        let text = text.replace("kind = \"api-key\"", "like = \"shopify-admin-token\"");
        let value = "shpat_0123456789abcdef0123456789abcdef";
        let vault = vault(&text, &Values::from([("shop", value)]));
        assert!(vault.secret("shop").is_some(), "{:?}", vault.unusable());
        let (host, uri) = ("shop.example.com".parse().unwrap(), Uri::from_static(url));
        let head = RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers };
        let (grants, swaps) = (["shop"].into_iter().collect(), Swaps::default());
        if !are_asked(&vault, &grants, &head, &swaps)? {
            return Ok(false);
        }
        check_body(&vault, &grants, &head, &swaps, body.as_bytes()).map(|()| true)
    }

    const URL: &str = "/admin/api/2026-01/graphql.json";
    const JSON: &str = "application/json";

    #[test]
    fn a_mutation_that_creates_a_credential_is_refused_however_it_is_written() {
        let secret = Reason::CredentialMinting;
        for (kind, body, expected) in [
            (JSON, r#"{"query":"{ shop { name } }","variables":{"a":"webhookSubscriptionCreate"}}"#, None),
            (JSON, r#"{"query":"mutation { webhookSubscriptionCreates(x:1) { id } }"}"#, None),
            (JSON, r#"{"query":"mutation { webhookSubscriptionCreate(x:1) { id } }"}"#, Some(secret)),
            (JSON, r#"{"query":"mutation{a:webhookSubscriptionCreate(x:1){id}}"}"#, Some(secret)),
            (JSON, r#"{"quer\u0079":"mutation{\u0077ebhookSubscriptionCreate{id}}"}"#, Some(secret)),
            (JSON, r#"{"query":"{a}","query":"mutation{webhookSubscriptionCreate{id}}"}"#, Some(secret)),
            (JSON, r#"{"Query":"mutation{webhookSubscriptionCreate{id}}"}"#, Some(secret)),
            (
                JSON,
                r#"[{"query":"{a}"},{"query":"mutation{storefrontAccessTokenCreate{id}}"}]"#,
                Some(secret),
            ),
            ("text/plain", r#"{"query":"mutation{webhookSubscriptionCreate{id}}"}"#, Some(secret)),
            ("application/graphql", "mutation { webhookSubscriptionCreate { id } }", Some(secret)),
            ("application/graphql", "{ shop { name } }", None),
            ("application/x-www-form-urlencoded", "query=mutation{a}", Some(Reason::Malformed)),
            (JSON, r#"{"id":"kept"}"#, Some(Reason::Malformed)),
            (JSON, r#"{"query":null,"extensions":{"persistedQuery":{}}}"#, Some(Reason::Malformed)),
            (JSON, r#"{"query":1}"#, Some(Reason::Malformed)),
            (JSON, r#"{"query":"{a}"} x"#, Some(Reason::Malformed)),
            (JSON, "", Some(Reason::Malformed)),
        ] {
            let found = asked("", URL, kind, body).err().map(|denial| denial.reason);
            assert_eq!(found, expected, "{body}");
        }
        for url in ["/x?query=mutation%7BwebhookSubscriptionCreate%7D", "/admin/api/2026-01/products.json"] {
            assert_eq!(asked("", url, JSON, ""), Ok(false));
        }
        let by_url =
            asked("", "/admin/api/1/graphql?query=mutation%7Bwebhook%53ubscriptionCreate%7D", JSON, "{}");
        assert_eq!(by_url.unwrap_err().reason, secret);
    }

    /// Nobody looks into its messages for them.
    #[test]
    fn a_websocket_to_such_an_address_is_refused_unless_nothing_is_left_to_look_for() {
        let upgrade = |more, url| {
            let headers = HeaderMap::from_iter([(UPGRADE, HeaderValue::from_static("websocket"))]);
            asked_with(more, (Method::GET, url), &headers, "")
        };
        let denial = upgrade("", URL).unwrap_err();
        assert_eq!(denial.reason, Reason::CredentialMinting);
        assert!(denial.remedy.contains("ask by POST"), "{denial:?}");
        assert_eq!(upgrade("", "/admin/api/2026-01/products.json"), Ok(false));
        assert_eq!(upgrade("minting = [\"webhook\", \"api-key\"]", URL), Ok(false));
    }

    #[test]
    fn the_switch_lets_it_through() {
        let body = r#"{"query":"mutation { webhookSubscriptionCreate(x:1) { id } }"}"#;
        let denial = asked("", URL, JSON, body).unwrap_err();
        assert_eq!(denial.place, "the mutation `webhookSubscriptionCreate`, which creates a webhook");
        assert!(denial.remedy.contains("`minting = [\"webhook\"]` to secret `shop`"), "{denial:?}");
        assert_eq!(asked("minting = [\"webhook\"]", URL, JSON, body), Ok(true));
        // Nothing is left to look for.
        assert_eq!(asked("minting = [\"webhook\", \"api-key\"]", URL, JSON, body), Ok(false));
    }
}
