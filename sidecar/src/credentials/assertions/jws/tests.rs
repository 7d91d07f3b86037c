use super::*;

fn encoded(text: &str) -> String {
    BASE64.encode(text)
}

fn token(header: &str, claims: &str) -> String {
    format!("{}.{}.{}", encoded(header), encoded(claims), encoded("signature"))
}

const HEAD: &str = r#"{"alg":"RS256","typ":"JWT"}"#;

#[test]
fn a_token_is_read_as_it_was_signed() {
    for header in [HEAD, r#"{"typ":"jwt","kid":"x","alg":"RS256"}"#, r#" {"alg":"RS\u0032\u00356"} "#] {
        let text = token(header, r#"{"iss":"a","x":[1]}"#);
        let token = Jws::parse(&text).unwrap();
        assert_eq!(format!("{}.{}", token.signed(), token.signature_text()), text);
        assert_eq!((token.signature(), token.claims().text("iss")), (&b"signature"[..], Some("a")));
        assert!(token.signed().ends_with(token.claims_text()));
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_none() {
    let claims = r#"{"iss":"a"}"#;
    let fine = token(HEAD, claims);
    let padded = format!("{}==.{}.c2ln", encoded(HEAD), encoded(claims));
    // `YR` and `YQ` are the same byte for a decoder that does not look at the last bits.
    let loose = format!("{}.{}.YR", encoded(HEAD), encoded(claims));
    for (text, error) in [
        (token(r#"{"alg":"none"}"#, claims), JwsError::Algorithm),
        (token(r#"{"alg":"HS256"}"#, claims), JwsError::Algorithm),
        (token(r#"{"alg":"rs256"}"#, claims), JwsError::Algorithm),
        (token(r#"{"typ":"JWT"}"#, claims), JwsError::Algorithm),
        (token(r#"{"alg":["RS256"]}"#, claims), JwsError::HeaderValue("alg")),
        (token(r#"{"alg":"RS256","typ":"at+jwt"}"#, claims), JwsError::HeaderValue("typ")),
        (token(r#"{"alg":"RS256","kid":1}"#, claims), JwsError::HeaderValue("typ` or `kid")),
        (token(r#"{"alg":"RS256","crit":["exp"]}"#, claims), JwsError::Header("crit".to_owned())),
        (token(r#"{"alg":"RS256","b64":false}"#, claims), JwsError::Header("b64".to_owned())),
        (token(r#"{"alg":"RS256","jwk":{}}"#, claims), JwsError::Header("jwk".to_owned())),
        (token(r#"{"alg":"none","alg":"RS256"}"#, claims), JwsError::Json("header", NotUnique::Twice)),
        (token(HEAD, r#"{"iss":"a","iss":"b"}"#), JwsError::Json("claims", NotUnique::Twice)),
        (token(HEAD, r#"{"x":{"a":1,"a":2}}"#), JwsError::Json("claims", NotUnique::Twice)),
        (token(HEAD, "[]"), JwsError::Json("claims", NotUnique::NotAnObject)),
        (token(HEAD, "\u{feff}{}"), JwsError::Json("claims", NotUnique::NotAnObject)),
        (format!("{fine}.x"), JwsError::Parts),
        ("a.b".to_owned(), JwsError::Parts),
        (format!("{}.", fine.rsplit_once('.').unwrap().0), JwsError::Unsigned),
        (padded, JwsError::Base64("header")),
        (loose, JwsError::Base64("signature")),
        (format!("{fine}\n"), JwsError::Base64("signature")),
        (fine.replacen('.', "\n.", 1), JwsError::Base64("header")),
        (format!("{fine}+/"), JwsError::Base64("signature")),
        (token(HEAD, &format!("{{\"iss\":\"{}\"}}", "a".repeat(MOST))), JwsError::TooLong),
    ] {
        assert_eq!(Jws::parse(&text).map(|_| ()), Err(error), "{text}");
    }
}

#[test]
fn whose_a_token_says_to_be_is_told_however_it_is_written() {
    let claims = r#"{"iss":"a@b.example","x":"???>>>"}"#;
    let standard = base64::prelude::BASE64_STANDARD.encode(claims);
    for text in [
        token(HEAD, claims),
        token("no JSON", claims),
        format!("x.{standard}.y"),
        format!("x.{}.y.z", encoded(claims)),
    ] {
        assert_eq!(claimed_issuer(&text).as_deref(), Some("a@b.example"), "{text}");
    }
    assert_eq!(claimed_issuer(&token(HEAD, r#"{"iss":12}"#)).as_deref(), Some("12"));
    for other in [token(HEAD, "{}"), token(HEAD, "[]"), "a.b".to_owned(), "ghs_abc".to_owned()] {
        assert_eq!(claimed_issuer(&other), None, "{other}");
    }
}
