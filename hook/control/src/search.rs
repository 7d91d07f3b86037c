//! Texts that a container would have, for the sidecar to look for real credentials in. They are in sealed memory
//! (memfd_create(2)), so that they are in no message, and cannot change or be waited for while they are read.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Of one container.
pub const MOST_TEXTS: usize = 256;
/// In bytes.
pub const LARGEST_TEXT: usize = 64 * 1024;
/// Of all texts together.
pub const MOST_TEXT: usize = 1024 * 1024;

const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// They follow each other in the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// What people call it.
    pub name: String,
    /// In bytes.
    pub length: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum TextError {
    #[error("there are more or longer texts than {MOST_TEXTS} of {LARGEST_TEXT} bytes, {MOST_TEXT} together")]
    TooMuch,
    #[error("what was handed over is not sealed memory")]
    NotSealed,
    #[error("it is not as long as the texts together")]
    Length,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Puts them into sealed memory.
pub fn seal<'t>(texts: impl IntoIterator<Item = &'t [u8]>) -> Result<OwnedFd, TextError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match memfd_create("texts", flags | MemfdFlags::NOEXEC_SEAL) {
        // A kernel before 6.3 does not know that, and one with `vm.memfd_noexec=2` insists on it.
        Err(Errno::INVAL) => memfd_create("texts", flags),
        other => other,
    };
    let mut file = File::from(memory.map_err(io::Error::from)?);
    for text in texts {
        file.write_all(text)?;
    }
    fcntl_add_seals(&file, SEALS).map_err(io::Error::from)?;
    Ok(file.into())
}

/// Each with its name.
pub fn unseal(memory: OwnedFd, texts: Vec<Text>) -> Result<Vec<(String, Vec<u8>)>, TextError> {
    let too_long = texts.iter().any(|text| text.length > LARGEST_TEXT);
    let length: usize = texts.iter().map(|text| text.length.min(LARGEST_TEXT)).sum();
    if texts.len() > MOST_TEXTS || too_long || length > MOST_TEXT {
        return Err(TextError::TooMuch);
    }
    if !fcntl_get_seals(&memory).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(TextError::NotSealed);
    }
    let mut file = File::from(memory);
    if file.metadata()?.len() != u64::try_from(length).unwrap_or(u64::MAX) {
        return Err(TextError::Length);
    }
    io::Seek::rewind(&mut file)?;
    let read = texts.into_iter().map(|text| {
        let mut bytes = vec![0; text.length];
        file.read_exact(&mut bytes)?;
        Ok((text.name, bytes))
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(lengths: &[usize]) -> Vec<Text> {
        lengths.iter().map(|&length| Text { name: length.to_string(), length }).collect()
    }

    #[test]
    fn what_is_not_sealed_or_not_as_long_is_not_read() {
        let memory = || seal([b"ab".as_slice(), b"", b"cde"]).unwrap();
        assert_eq!(unseal(memory(), named(&[2, 0, 3])).unwrap()[2], ("3".to_owned(), b"cde".to_vec()));
        for lengths in [&[2, 2][..], &[2, 0, 4], &[]] {
            assert!(matches!(unseal(memory(), named(lengths)), Err(TextError::Length)), "{lengths:?}");
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcde").unwrap();
        assert!(matches!(unseal(file.into(), named(&[5])), Err(TextError::NotSealed)));
        let loose = memfd_create("loose", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(unseal(loose, named(&[])), Err(TextError::NotSealed)));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(matches!(unseal(pipe, named(&[5])), Err(TextError::NotSealed)));
        assert!(File::from(memory()).write_all(b"x").is_err());
    }

    #[test]
    fn no_more_is_read_than_there_may_be() {
        for lengths in
            [vec![LARGEST_TEXT + 1], vec![0; MOST_TEXTS + 1], vec![LARGEST_TEXT; 17], vec![usize::MAX; 2]]
        {
            assert!(matches!(unseal(seal([]).unwrap(), named(&lengths)), Err(TextError::TooMuch)));
        }
    }

    proptest! {
        #[test]
        fn any_texts_come_back_as_they_were(
            texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            wrong in proptest::collection::vec(0usize..300, 0..8),
        ) {
            let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
            let seal = || seal(texts.iter().map(Vec::as_slice)).unwrap();
            let back: Vec<_> = unseal(seal(), named(&lengths)).unwrap().into_iter().map(|(_, bytes)| bytes).collect();
            prop_assert_eq!(&back, &texts);
            // Others are an error, or are as long as they say.
            if let Ok(read) = unseal(seal(), named(&wrong)) {
                prop_assert!(read.iter().map(|(_, bytes)| bytes.len()).eq(wrong.iter().copied()));
            }
        }
    }
}
