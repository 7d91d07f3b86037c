use std::sync::Arc;

use ::base64::Engine;
use ::base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const REAL: &str = "sk-ant-api03-Zo9_-mJ4tKq7";
const STAND_IN: &str = "sk-ant-api03-aB3dE6gH-_1k";
/// Nothing in common with its stand-in, not even the first character.
const OTHER: &str = "0f1e2d3c4b5a69788796";
const OTHER_STAND_IN: &str = "98a7b6c5d4e3f2019abc";

fn scrub() -> Arc<Patterns> {
    let pair =
        |owner, value, other: &'static str| Pair { owner, value, other: other.into(), forms: Forms::All };
    Arc::new(Patterns::new([pair(0, REAL, STAND_IN), pair(1, OTHER, OTHER_STAND_IN)]))
}

fn swap() -> Arc<Patterns> {
    let pair =
        |owner, value, other: &'static str| Pair { owner, value, other: other.into(), forms: Forms::All };
    Arc::new(Patterns::new([pair(0, STAND_IN, REAL), pair(1, OTHER_STAND_IN, OTHER)]))
}

/// What comes out, and that never more than the longest form was held back.
fn through(patterns: &Arc<Patterns>, body: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut replacer = Replacer::new(Arc::clone(patterns));
    let mut out = Vec::new();
    let mut passed = 0;
    for chunk in pieces(body, cuts) {
        passed += chunk.len();
        out.extend_from_slice(&replacer.push(chunk));
        assert!(replacer.held() < patterns.longest().max(1), "{} held", replacer.held());
        if patterns.keeps_length() {
            assert_eq!(out.len() + replacer.held(), passed);
        }
    }
    out.extend_from_slice(&replacer.finish());
    assert_eq!(replacer.held(), 0);
    out
}

fn pieces(body: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|two| Bytes::copy_from_slice(&body[two[0]..two[1]])).collect()
}

fn percent(text: &str, which: impl Fn(usize) -> bool, upper: bool) -> String {
    let one = |(at, byte): (usize, u8)| match (which(at), upper) {
        (false, _) => char::from(byte).to_string(),
        (true, true) => format!("%{byte:02X}"),
        (true, false) => format!("%{byte:02x}"),
    };
    text.bytes().enumerate().map(one).collect()
}

fn json(text: &str, which: impl Fn(usize) -> bool) -> String {
    let one = |(at, byte): (usize, u8)| match which(at) {
        false => char::from(byte).to_string(),
        true => format!("\\u{byte:04x}"),
    };
    text.bytes().enumerate().map(one).collect()
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// One value in each form; `Base64` of a text with the value in it.
fn forms(value: &str, before: &str, after: &str, some: usize) -> Vec<String> {
    let around = format!("{before}{value}{after}");
    let some = |at: usize| at.is_multiple_of(some + 2);
    let mut forms = vec![
        value.to_owned(),
        percent(value, |_| true, true),
        percent(value, |_| true, false),
        percent(value, some, true),
        json(value, |_| true),
        json(value, some),
        hex(value),
        hex(value).to_ascii_uppercase(),
    ];
    let engines = [BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD];
    forms.extend(engines.iter().map(|engine| engine.encode(&around)));
    forms
}

#[test]
fn each_form_leaves_as_the_stand_in_in_the_same_form() {
    for (real, stand_in) in [(REAL, STAND_IN), (OTHER, OTHER_STAND_IN)] {
        for before in ["", "x", "xy", "user:"] {
            for after in ["", "z", "zz"] {
                let wanted = forms(stand_in, before, after, 3);
                for (form, wanted) in forms(real, before, after, 3).iter().zip(wanted) {
                    let out = through(&scrub(), format!("<{form}>").as_bytes(), &[]);
                    assert_eq!(String::from_utf8(out).unwrap(), format!("<{wanted}>"), "{form}");
                }
            }
        }
    }
}

#[test]
fn what_holds_no_beginning_is_passed_on_without_a_copy() {
    let mut replacer = Replacer::new(scrub());
    let chunk = Bytes::from("data: {\"delta\": \"hello\"}\n\n");
    let out = replacer.push(chunk.clone());
    assert_eq!((out.as_ptr(), out.len(), replacer.held()), (chunk.as_ptr(), chunk.len(), 0));
    let half = Bytes::from("data: {\"delta\": \"hello sk-ant");
    let out = replacer.push(half.clone());
    assert_eq!((out.as_ptr(), &out[..]), (half.as_ptr(), &b"data: {\"delta\": \"hello "[..]));
    assert_eq!(replacer.held(), 6);
    // It was no value.
    assert_eq!(replacer.push(Bytes::from(" rest\n")), "sk-ant rest\n");
}

#[test]
fn of_two_values_that_begin_alike_the_longer_one_is_replaced() {
    let (short, long) = ("sk-0123456789abcdef", "sk-0123456789abcdefXYZ");
    let pair =
        |owner, value, other: &'static str| Pair { owner, value, other: other.into(), forms: Forms::All };
    let patterns = Arc::new(Patterns::new([
        pair(0, short, "sk-aaaaaaaaaaaaaaaa"),
        pair(1, long, "sk-bbbbbbbbbbbbbbbbbbb"),
    ]));
    let body = format!("{long} {short} {short}X {short}");
    let wanted = "sk-bbbbbbbbbbbbbbbbbbb sk-aaaaaaaaaaaaaaaa sk-aaaaaaaaaaaaaaaaX sk-aaaaaaaaaaaaaaaa";
    for cut in 0..body.len() {
        assert_eq!(String::from_utf8(through(&patterns, body.as_bytes(), &[cut])).unwrap(), wanted);
    }
}

#[test]
fn json_stays_json_and_urls_stay_urls() {
    let (real, stand_in) = ("a\"b\\c/d+e&f0123456", "\"x%y/z\\k=l0123456a");
    let pair = Pair { owner: 0, value: real, other: stand_in.into(), forms: Forms::All };
    let patterns = Arc::new(Patterns::new([pair]));
    assert!(!patterns.keeps_length() && scrub().keeps_length());
    let text = serde_json::to_string(&[real]).unwrap();
    let out = through(&patterns, text.as_bytes(), &[5]);
    assert_eq!(serde_json::from_slice::<Vec<String>>(&out).unwrap(), [stand_in]);
    let slashes = text.replace('/', "\\/");
    let out = through(&patterns, slashes.as_bytes(), &[5]);
    assert_eq!(serde_json::from_slice::<Vec<String>>(&out).unwrap(), [stand_in]);
    let url = percent_encoding::utf8_percent_encode(real, percent_encoding::NON_ALPHANUMERIC).to_string();
    let out = through(&patterns, url.as_bytes(), &[5]);
    let back = percent_encoding::percent_decode(&out).decode_utf8().unwrap().into_owned();
    assert_eq!(back, stand_in);
}

#[test]
fn a_watched_value_is_told_with_its_last_byte() {
    for form in forms(REAL, "", "", 3) {
        let form = form.trim_end_matches('=');
        let mut detector = Detector::new(scrub());
        let (last, first) = form.as_bytes().split_last().unwrap();
        // The last letter of Base64 may hold nothing but what follows.
        let early = detector.push(Bytes::copy_from_slice(first));
        let late = detector.push(Bytes::copy_from_slice(&[*last]));
        assert_eq!([early, late].concat(), [0], "{form}");
        assert!(detector.finish().is_empty());
    }
}

#[test]
fn nothing_to_look_for_is_no_fault() {
    let patterns = Arc::new(Patterns::new([]));
    assert!(patterns.is_empty());
    assert_eq!(through(&patterns, b"sk-ant", &[3]), b"sk-ant");
}

#[test]
fn no_value_is_ever_printed() {
    let mut replacer = Replacer::new(scrub());
    replacer.push(Bytes::from("sk-ant-api03-Zo9"));
    let mut detector = Detector::new(scrub());
    detector.push(Bytes::from("sk-ant-api03-Zo9"));
    let shown = format!("{replacer:?} {detector:?} {:#?}", scrub());
    assert!(!shown.contains("Zo9") && !shown.contains("sk-"), "{shown}");
}

/// Text, values in every form, beginnings of values, and what looks like an escape.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let form = (any::<bool>(), "[ -~]{0,4}", "[ -~]{0,4}", 0..6_usize, any::<prop::sample::Index>());
    let form = form.prop_map(|(first, before, after, some, index)| {
        let forms = forms(if first { REAL } else { OTHER }, &before, &after, some);
        forms[index.index(forms.len())].clone().into_bytes()
    });
    let start = form.clone().prop_flat_map(|form| (0..form.len()).prop_map(move |end| form[..end].to_vec()));
    let noise = prop_oneof![
        vec(any::<u8>(), 0..20),
        "[%\\\\u0-9a-f]{0,12}".prop_map(String::into_bytes),
        Just(STAND_IN.as_bytes()[..20].to_vec()),
    ];
    vec(prop_oneof![3 => form, 2 => start, 2 => noise], 0..8).prop_map(|parts| parts.concat())
}

/// All that a reader of `text` could see: as it is, with escapes undone, and what runs of letters decode to.
fn readable(text: &[u8]) -> Vec<Vec<u8>> {
    let mut seen = vec![text.to_vec(), unescaped(text)];
    let letters = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    for run in text.split(|byte| !letters(byte)) {
        let standard: String =
            run.iter().map(|b| char::from(*b).to_string().replace('-', "+").replace('_', "/")).collect();
        for start in 0..4.min(standard.len()) {
            let part = &standard[start..];
            let whole = &part[..part.len() - usize::from(part.len() % 4 == 1)];
            let lax = ::base64::engine::GeneralPurposeConfig::new()
                .with_decode_allow_trailing_bits(true)
                .with_decode_padding_mode(::base64::engine::DecodePaddingMode::Indifferent);
            let engine = ::base64::engine::GeneralPurpose::new(&::base64::alphabet::STANDARD, lax);
            seen.push(engine.decode(whole).unwrap());
        }
        for start in 0..2.min(run.len()) {
            let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap_or(0);
            seen.push(run[start..].chunks(2).map(byte).collect());
        }
    }
    seen
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let hex = |digits: Option<&[u8]>| {
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.get(at) {
        let escape = match text.get(at..) {
            Some([b'%', ..]) => hex(text.get(at + 1..at + 3)).map(|byte| (byte, 3)),
            Some([b'\\', b'u', b'0', b'0', ..]) => hex(text.get(at + 4..at + 6)).map(|byte| (byte, 6)),
            _ => None,
        };
        let (byte, length) = escape.unwrap_or((*byte, 1));
        out.push(byte);
        at += length;
    }
    out
}

fn holds(text: &[u8], value: &str) -> bool {
    readable(text).iter().any(|seen| seen.windows(value.len()).any(|part| part == value.as_bytes()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_real_value_comes_out_and_the_split_makes_no_difference(body in body(), cuts in vec(any::<usize>(), 0..12)) {
        let out = through(&scrub(), &body, &cuts);
        prop_assert!(!holds(&out, REAL) && !holds(&out, OTHER));
        prop_assert_eq!(&out, &through(&scrub(), &body, &[]));
        let every: Vec<usize> = (0..body.len()).collect();
        prop_assert_eq!(&out, &through(&scrub(), &body, &every));
    }

    /// Up to the letter case of escapes, which a lone `%2D` does not tell.
    #[test]
    fn swapping_undoes_scrubbing(body in body(), cuts in vec(any::<usize>(), 0..12)) {
        let scrubbed = through(&scrub(), &body, &cuts);
        let back = through(&swap(), &scrubbed, &cuts);
        prop_assert_eq!(unescaped(&back).to_ascii_lowercase(), unescaped(&body).to_ascii_lowercase());
    }

    #[test]
    fn watching_finds_what_would_be_replaced(body in body(), cuts in vec(any::<usize>(), 0..12)) {
        let mut replacer = Replacer::new(scrub());
        let mut detector = Detector::new(scrub());
        let mut found = 0;
        for chunk in pieces(&body, &cuts) {
            replacer.push(chunk.clone());
            found += detector.push(chunk).len();
        }
        replacer.finish();
        found += detector.finish().len();
        prop_assert_eq!(found as u64, replacer.replaced());
    }
}
