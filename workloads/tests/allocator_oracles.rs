//! The recorded sets and worked examples of the caching allocator, if the folder with them is there.

use std::path::Path;

use workloads::allocator::check::check_folder;

#[test]
fn recorded_sets_match() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/allocator");
    if !folder.is_dir() {
        println!("skipped: {} is not here", folder.display());
        return;
    }
    let verdicts = check_folder(&folder).unwrap();
    assert!(verdicts.len() >= 18);
    for verdict in verdicts {
        assert_eq!(verdict.difference, None, "{}", verdict.name);
        assert!(verdict.operations > 0);
    }
}
