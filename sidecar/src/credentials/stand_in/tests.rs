use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::*;
use crate::credentials::catalogue::{Alphabet, Checksum};

fn catalogue() -> &'static Catalogue {
    static CATALOGUE: std::sync::LazyLock<Catalogue> =
        std::sync::LazyLock::new(|| Catalogue::new([]).unwrap());
    &CATALOGUE
}

fn look() -> Look<'static> {
    Look { prefix: None, pattern: None, like: None, catalogue: catalogue() }
}

fn with(key: u8, name: &str, real: &str, look: Look<'_>) -> Result<String, ShapeError> {
    let real = SecretValue::from_bytes(real.as_bytes()).unwrap();
    derive(&InstallationKey::from_bytes(&[key; 32]), name, &real, look)
}

fn stand_in(real: &str) -> String {
    with(1, "n", real, look()).unwrap()
}

fn is_marked(text: &str) -> bool {
    mark::is_in(&InstallationKey::from_bytes(&[1; 32]), text.as_bytes())
}

#[test]
fn prefix_length_and_alphabet_are_kept() {
    let body = "Ab0-_xyzAb0-_xyzAb0-_xyz";
    for (real, prefix, alphabet) in [
        (format!("sk-ant-oat01-{body}"), "sk-ant-oat01-", Alphabet::Base64Url),
        (format!("sk-proj-{body}"), "sk-proj-", Alphabet::Base64Url),
        ("ghp_abcdefghijKLMNOPQRST0123456789".into(), "ghp_", Alphabet::Base62),
        ("xoxb-123456789012-AbCdEf".into(), "xoxb-", Alphabet::Base64Url),
        ("shptka_0123456789abcdef0123456789abcdef".into(), "shptka_", Alphabet::Hex),
        ("0123456789012345".into(), "", Alphabet::Digits),
        ("0123456789ABCDEF".into(), "", Alphabet::HexUpper),
        ("0123456789abcdef".into(), "", Alphabet::Hex),
        ("ABCDEFGHIJKLMN234567".into(), "", Alphabet::Base32),
        ("abcdefghijklmnopqrst0189".into(), "", Alphabet::Base36),
        ("AAAAbbbbCCCC1111+/".into(), "", Alphabet::Base64),
        ("eyJhbGciOi.eyJzdWIiOi.c2ln".into(), "", Alphabet::Unreserved),
        ("p@ssw0rd!p@ssw0rd!".into(), "", Alphabet::Printable),
    ] {
        let stand_in = stand_in(&real);
        assert_eq!(stand_in.len(), real.len(), "{real}");
        let rest = stand_in.strip_prefix(prefix).unwrap_or_else(|| panic!("{stand_in}"));
        assert!(rest.bytes().all(|letter| alphabet.holds(letter)), "{stand_in} of {real}");
        assert_ne!(stand_in, real);
    }
}

#[test]
fn a_known_shape_is_kept_in_every_part() {
    let github = stand_in("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");
    let (drawn, checksum) = github.strip_prefix("ghp_").unwrap().split_at(30);
    assert_eq!(Checksum::Crc32Base62.of(drawn.as_bytes()), checksum);
    let anthropic = stand_in(&format!("sk-ant-api03-{}AA", "Ab0_-".repeat(19).split_at(93).0));
    assert!(anthropic.ends_with("AA") && anthropic.starts_with("sk-ant-api03-"));
    let slack = stand_in("xoxb-123456789012-1234567890123-abcdefghijklmnopqrstuvwX");
    let groups: Vec<&str> = slack.split('-').collect();
    assert_eq!((groups[1], groups[2].len(), groups[3].len()), ("123456789012", 13, 24));
    let openai = stand_in(&format!("sk-proj-{0}T3BlbkFJ{0}", "aB3_-xyz".repeat(10).split_at(74).0));
    assert_eq!(openai.get(82..90), Some("T3BlbkFJ"));
    for known in [github, anthropic, slack, openai] {
        assert!(catalogue().shape_of(&known).is_some(), "{known}");
        assert!(is_marked(&known), "{known}");
    }
}

#[test]
fn a_uuid_stays_one_and_padding_stays_at_the_end() {
    for real in ["01234567-89ab-cdef-0123-456789abcdef", "01234567-89AB-CDEF-0123-456789ABCDEF"] {
        let uuid = stand_in(real);
        let upper = real.contains('A');
        for (own, other) in uuid.chars().zip(real.chars()) {
            assert_eq!(own == '-', other == '-', "{uuid}");
            assert!(own == '-' || own.is_ascii_digit() || own.is_ascii_uppercase() == upper, "{uuid}");
        }
    }
    assert!(stand_in("AAAAbbbbCCCC1111+/a=").ends_with('='));
    assert_eq!(stand_in("abcdefghijklmnop====").len(), 20);
}

#[test]
fn a_jwt_has_its_header_and_harmless_claims() {
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let header = encode("{\"alg\":\"HS256\",\"kid\":\"one\"}");
    let claims = encode(&format!(
        "{{\"sub\":\"somebody\",\"email\":\"somebody@example.com\",\"x\":\"{}\"}}",
        "y".repeat(60)
    ));
    let real = format!("{header}.{claims}.{}", encode("0123456789abcdef0123456789abcdef"));
    let own = stand_in(&real);
    let parts: Vec<&str> = own.split('.').collect();
    assert_eq!((own.len(), parts.len(), parts[0]), (real.len(), 3, header.as_str()));
    let claims = BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["sub"], "stand-in");
    assert!(claims["exp"].as_u64().unwrap() > 4_000_000_000 && claims.get("email").is_none());
    assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(parts[2]).unwrap().len(), 32);
    assert!(is_marked(&own) && own != with(1, "other", &real, look()).unwrap());
}

#[test]
fn a_known_prefix_that_leaves_too_little_gives_way_to_a_shorter_one() {
    let stand_in = stand_in("sk-ant-api03-abc");
    assert!(stand_in.starts_with("sk-") && !stand_in.starts_with("sk-ant-api"), "{stand_in}");
}

#[test]
fn what_is_declared_is_kept_and_must_fit() {
    let real = "acme_0123456789abcdef";
    let prefix = |prefix| with(1, "n", real, Look { prefix: Some(prefix), ..look() });
    assert!(prefix("acme_").unwrap().starts_with("acme_"));
    assert_eq!(prefix("other_"), Err(ShapeError::Prefix));
    assert_eq!(prefix("acme_01234567"), Err(ShapeError::Short));
    let pattern = |text: &str| {
        let pattern = text.parse().unwrap();
        with(1, "n", real, Look { pattern: Some(&pattern), ..look() })
    };
    let own = pattern("acme_{=hex:2}{hex:14}").unwrap();
    assert!(own.starts_with("acme_01") && own.bytes().skip(5).all(|letter| Alphabet::Hex.holds(letter)));
    assert_eq!(pattern("acme_{hex:15}"), Err(ShapeError::Pattern));
}

#[test]
fn a_value_must_look_like_what_it_is_said_to_be_like() {
    let like = |kind: &str, real: &str| {
        let kind = catalogue().kind(kind).unwrap();
        with(1, "n", real, Look { like: Some(kind), ..look() }).map_err(|error| error.to_string())
    };
    assert!(like("github-pat", "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").unwrap().starts_with("ghp_"));
    assert!(like("mistral-api-key", "abcdefghijklmnopqrstuvwxyzABCDEF").is_ok());
    for (kind, real, said) in [
        (
            "github-pat",
            "glpat-0123456789abcdefghij",
            "does not look like GitHub: personal access token, classic or fine-grained: expected prefix `ghp_` or `github_pat_`",
        ),
        (
            "github-pat",
            "ghp_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq18",
            "its length, its letters or its checksum are others",
        ),
        ("mistral-api-key", "abcdefghijklmnopqrstuvwxyzABCDE", "its length or its letters are others"),
    ] {
        let error = like(kind, real).unwrap_err();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("0123") && !error.contains("zQWB") && !error.contains("abcdef"), "{error}");
    }
}

/// Changing this changes every container's stand-ins under its running agents.
#[test]
fn the_derivation_does_not_change() {
    let own = |name, real| with(1, name, real, look()).unwrap();
    assert_eq!(
        [own("anthropic", "0123456789abcdef"), own("github", "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")],
        ["963244bc8dd3caca", "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"]
    );
}

#[test]
fn a_value_that_would_be_its_own_stand_in_gets_another() {
    let own = stand_in("0123456789012345");
    let other = stand_in(&own);
    assert!(other != own && other.len() == own.len());
}

/// The mark is what tells a stand-in whose secret is gone from somebody's real value.
#[test]
fn stand_ins_are_marked_where_their_length_allows() {
    for (real, marked) in [
        ("0123456789012345678901234567", true),
        ("012345678901234567890123456", false),
        ("0123456789abcdef012345", true),
        ("0123456789abcdef01234", false),
        ("ABCDEFGHIJKLMN2345", true),
        ("abcdefghijklmnopqx", true),
        ("sk-0123456789abcdefghI", true),
        ("p@ssw0rd!p@ssw0rd!", true),
    ] {
        assert_eq!(is_marked(&stand_in(real)), marked, "{real}");
        assert!(!is_marked(real), "{real}");
    }
}

proptest! {
    #[test]
    fn shape_holds_for_any_value(real in "[!-~]{16,80}", name in "[a-z]{1,8}") {
        let own = |key, name: &str| with(key, name, &real, look()).unwrap();
        let first = own(1, &name);
        prop_assert_eq!(first.len(), real.len());
        prop_assert!(first.bytes().all(|b| b.is_ascii_graphic()));
        prop_assert_ne!(&first, &real);
        prop_assert_eq!(&own(1, &name), &first);
        prop_assert_ne!(&own(2, &name), &first);
        prop_assert_ne!(own(1, &format!("{name}x")), first);
    }

    #[test]
    fn nobodys_real_value_is_taken_for_a_stand_in(real in "(sk-|ghp_|)[A-Za-z0-9_-]{16,80}") {
        prop_assert!(!is_marked(&real));
    }
}

/// A remainder instead of a fresh draw would make the last 8 of 66 letters a quarter less frequent.
#[test]
fn no_letter_is_favoured() {
    for (real, alphabet) in [("7", Alphabet::Digits), ("!", Alphabet::Printable)] {
        let drawn = stand_in(&real.repeat(8000));
        let letters = alphabet.unescaped().letters();
        let mean = 8000 / letters.len();
        for letter in letters.chars() {
            let count = drawn.matches(letter).count();
            assert!((mean * 6 / 10..=mean * 14 / 10).contains(&count), "{count} times {letter}");
        }
        let last = &letters[256 % letters.len()..];
        let (found, expected) =
            (drawn.chars().filter(|c| last.contains(*c)).count(), 8000 * last.len() / letters.len());
        assert!(found.abs_diff(expected) < 110, "{found} of {expected}");
    }
}
