//! The Admin API of a shop, as far as themes are listed.

use serde_json::json;

use super::{ANSWER, Answer, Asked};

/// Answers a GraphQL query by what it asks for.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    if asked.method != "POST" || !asked.path.ends_with("/graphql.json") {
        return None;
    }
    let query = String::from_utf8_lossy(asked.body);
    let theme = json!({ "id": "gid://shopify/OnlineStoreTheme/1", "name": format!("{ANSWER} at {}", asked.host),
        "role": "MAIN", "processing": false });
    let data = if query.contains("themes(") {
        json!({ "themes": { "nodes": [theme], "pageInfo": { "hasNextPage": false, "endCursor": null } } })
    } else if query.contains("publicApiVersions") {
        json!({ "publicApiVersions": [{ "handle": "2026-10", "supported": true },
            { "handle": "unstable", "supported": false }] })
    } else {
        json!({ "shop": { "id": "gid://shopify/Shop/1", "name": "Mock", "myshopifyDomain": "mock.myshopify.com" },
            "theme": theme })
    };
    Some(Answer::json(&json!({ "data": data })))
}
