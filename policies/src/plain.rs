//! Which characters of a text that somebody hostile chose are shown as they are.

/// Letters and digits of any script, and what else ASCII has that is seen, the space among it. Not what steers a terminal or
/// hides text, nor letters that nobody sees, such as U+3164, the Hangul filler.
pub fn is_plain(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || (c.is_alphanumeric() && !is_ignorable(c))
}

/// `Default_Ignorable_Code_Point` of Unicode's `DerivedCoreProperties.txt`.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_not_plain() {
        for c in [
            '\u{3164}', '\u{115f}', '\u{1160}', '\u{ffa0}', '\u{ad}', '\u{200b}', '\u{202e}', '\u{1b}',
            '\u{85}', '\n',
        ] {
            assert!(!is_plain(c), "{c:?}");
        }
        for c in ['a', ' ', '"', '\u{e9}', '\u{4e2d}', '\u{ac00}', '\u{661}'] {
            assert!(is_plain(c), "{c:?}");
        }
        // Letters and digits that are not shown: these and no others.
        let hidden: Vec<char> = (0..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            .filter(|c| c.is_alphanumeric() && !is_plain(*c))
            .collect();
        assert_eq!(hidden, ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}']);
    }
}
