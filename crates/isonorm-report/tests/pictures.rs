//! The documents' pictures are what the command makes that `bench/README.md` tells.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use isonorm_report::picture;
use isonorm_report::record::Record;

#[test]
fn the_documents_pictures_are_those_of_their_records() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("bench/README.md")).expect("bench/README.md");
    let mut commands = readme
        .lines()
        .filter(|line| line.starts_with("isonorm bench --record "));
    let command = commands.next().expect("the command for the pictures");
    let words: Vec<_> = command.split(' ').collect();
    let after = |option: &'static str| {
        words
            .windows(2)
            .filter(move |pair| pair[0] == option)
            .map(|pair| pair[1])
    };
    let records: Vec<_> = after("--record")
        .map(|path| Record::load(&root.join(path)).expect("a record"))
        .collect();
    let folder = root.join(after("--pictures").next().expect("a folder"));

    let made = picture::all(&records).expect("pictures").into_iter();
    let made: BTreeMap<_, _> = made
        .map(|picture| (format!("{}.svg", picture.name), picture.standalone()))
        .collect();
    let files = fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path());
    let there: BTreeMap<_, _> = files
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("an SVG file"))
        })
        .collect();
    assert_eq!(there.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    for (name, text) in &made {
        assert!(there[name] == *text, "{name} is not what this makes: {command}");
    }
}
