//! Texts that are searched.

use understudy_control::search::{Text, seal};

use super::*;

fn search(texts: &[&str]) -> Result<Vec<String>, Refusal> {
    let named = texts.iter().enumerate();
    let named =
        named.map(|(number, text)| Text { name: format!("file {number}"), length: text.len() }).collect();
    let memory = seal(texts.iter().map(|text| text.as_bytes())).unwrap();
    stand().registry.search(named, vec![memory])
}

#[test]
fn the_first_real_value_is_refused_and_what_looks_like_one_is_noted() {
    assert_eq!(search(&["a", "b"]).unwrap(), Vec::<String>::new());
    assert_eq!(search(&["a", "suspicious"]).unwrap(), ["file 1"]);
    assert_eq!(search(&["suspicious", "a", "real"]).unwrap_err().reason, "file 2");
    let notes = search(&["suspicious"; 7]).unwrap();
    assert!(notes.len() == 6 && notes[5].starts_with("2 more"), "{notes:?}");
}

#[test]
fn what_is_not_handed_over_as_it_should_be_is_refused() {
    let stand = stand();
    let text = || vec![Text { name: "x".to_owned(), length: 1 }];
    let memory = || seal([b"x".as_slice()]).unwrap();
    let file = std::fs::File::open("/dev/zero").unwrap();
    for descriptors in [vec![], vec![memory(), memory()], vec![file.into()]] {
        assert!(stand.registry.search(text(), descriptors).unwrap_err().remedy.contains("version"));
    }
    assert!(stand.registry.search(text(), vec![memory()]).is_ok());
}
