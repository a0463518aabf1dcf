//! Files that are no tapes, and tapes of newer versions, are refused with a reason.

use std::path::Path;

use scrubjay_core::id::TapeId;
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{
    self, Header, HeaderError, Layout, Origin, SessionRef, SessionSource, VERSION,
};
use scrubjay_tape::format::reader::{OpenError, Tape};
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::writer::Writer;

use crate::fixture::{Owned, home, numbered, read, record_live, record_sealed, scratch};

/// Sets the version of a tape, with valid checksums.
fn set_version(path: &Path, version: u16) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let end = 20 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..16]);
    crc.update(&bytes[20..end]);
    bytes[16..20].copy_from_slice(&crc.finalize().to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_newer_version_is_refused_and_named() {
    let (one, other) = (scratch(), scratch());
    let home = home(&one);
    let entries = [Owned::message("m")];
    for path in [record_sealed(&crate::fixture::home(&other), &entries), record_live(&home, &entries)] {
        for version in [VERSION + 1, u16::MAX] {
            set_version(&path, version);
            let error = Tape::open(&path).unwrap_err();
            assert!(
                matches!(&error, OpenError::Header { source: HeaderError::TooNew(v), .. } if *v == version)
            );
            assert_eq!(
                error.to_string(),
                format!(
                    "{}: the tape is of version {version}, and this scrubjay reads up to {VERSION}: \
                     update scrubjay to read it",
                    path.display()
                )
            );
        }
        set_version(&path, VERSION);
        assert_eq!(read(&Tape::open(&path).unwrap()), numbered(&entries));
    }
    // It is not sealed either, because sealing rewrites entries that this version may misread.
    let live = record_live(&home, &entries);
    set_version(&live, VERSION + 1);
    let before = std::fs::read(&live).unwrap();
    assert!(home.seal_abandoned().unwrap().iter().all(Result::is_err));
    assert_eq!(std::fs::read(&live).unwrap(), before);
}

#[test]
fn other_files_are_refused_as_no_tape() {
    let scratch = scratch();
    let path = scratch.path().join("file.tape");
    let text = "Lorem ipsum dolor sit amet. ".repeat(20_000);
    for content in [&b""[..], b"S", b"SCRUBJA", b"# notes\n", &[0; 4096], &[0xFF; 100_000], text.as_bytes()] {
        std::fs::write(&path, content).unwrap();
        let error = Tape::open(&path).unwrap_err();
        let message = format!("{}: not a tape: the file does not begin as one", path.display());
        assert_eq!(error.to_string(), message, "{} bytes", content.len());
    }
    for content in [&b"SCRUBJAY"[..], b"SCRUBJAY and nothing else that fits"] {
        std::fs::write(&path, content).unwrap();
        let error = Tape::open(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: the tape's header is damaged", path.display()));
    }
    for missing in [scratch.path().join("nothing.tape"), scratch.path().to_owned()] {
        let error = Tape::open(&missing).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }));
        assert_eq!(error.to_string(), format!("cannot read {}", missing.display()));
    }
}

#[test]
fn a_header_accepts_long_texts_from_the_environment() {
    let scratch = scratch();
    let home = home(&scratch);
    let long = |c: &str| Some(c.repeat(100_000));
    let header = Header {
        id: TapeId::from_random([7; 10]),
        name: "\u{1}é".repeat(60_000),
        program: long("p"),
        session: SessionRef { id: "i".repeat(100_000), told_by: SessionSource::HostSession },
        workspace: long("\u{2}"),
        origin: Origin {
            host_session: long("s"),
            traceparent: long("ü"),
            host_program: long("\""),
            ..Origin::default()
        },
        ..crate::fixture::header(1)
    };
    let path = home.live_path(header.id, header.started_wall_ns);
    let mut writer = Writer::create(path.clone(), header.clone(), clock::now().instant).unwrap();
    let entries = [Owned::message("m")];
    writer.append(entries.iter().map(Owned::written)).unwrap();
    let live = Tape::open(&path).unwrap();
    let accepted = live.header().unwrap().clone();
    assert_eq!(writer.header(), &accepted);
    assert_eq!(accepted.id, header.id);
    assert!(accepted.name.len() > 100 && header.name.starts_with(&accepted.name), "{}", accepted.name.len());
    assert_eq!(read(&live), numbered(&entries));
    drop(writer);
    let sealed = Tape::open(&seal(&path).unwrap()).unwrap();
    assert_eq!(sealed.header(), Some(&accepted));
    // A header of ordinary size is not changed.
    let ordinary = Header { name: "n".repeat(5_000), ..crate::fixture::header(2) };
    let (read, layout, version, _) = header::decode(&header::encode(&ordinary, Layout::Live)).unwrap();
    assert_eq!((read, layout, version), (ordinary, Layout::Live, VERSION));
}
