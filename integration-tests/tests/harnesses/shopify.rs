//! Shopify CLI for themes, with a Theme Access password.

use crate::tool::Tool;

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn shopify_lists_themes_with_a_stand_in() {
    let shopify = Tool {
        harness: "shopify",
        needs: &["node", "shopify"],
        env: &[("SHOPIFY_FLAG_STORE", "mock.myshopify.com"), ("CI", "1")],
        command: "node /opt/shopify/node_modules/@shopify/cli/bin/run.js theme list --json",
        answer: "MOCK-OK at theme-kit-access.shopifyapps.com",
        secret: "theme-password",
        arrived: ("/graphql.json", "x-shopify-access-token", ""),
        ..Tool::PLAIN
    };
    shopify.prove();
}
