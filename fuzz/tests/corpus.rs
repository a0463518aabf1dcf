//! Every file in `corpus/` passes its target. Needs no libFuzzer: `cargo test --no-default-features`, in `fuzz/`.

use std::path::Path;

#[test]
fn every_corpus_file_passes_its_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, check) in scrubjay_fuzz::TARGETS {
        let files: Vec<_> =
            std::fs::read_dir(corpus.join(name)).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() >= 10, "{name} has a corpus");
        for file in files {
            let data = std::fs::read(&file).unwrap();
            let outcome = std::panic::catch_unwind(|| check(&data));
            assert!(outcome.is_ok(), "{}", file.display());
        }
    }
}
