use std::path::Path;
use isonorm_report::record::Record;
#[test]
fn try_it() {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/records");
    let list = std::env::var("RECORDS").unwrap();
    let records: Vec<_> = list.split(',').map(|n| Record::load(&records.join(n)).unwrap()).collect();
    std::fs::write("/tmp/page.html", isonorm_report::page::html(&records).unwrap()).unwrap();
    for p in isonorm_report::picture::all(&records).unwrap() { std::fs::write(format!("/tmp/pics/{}.svg", p.name), p.standalone()).unwrap(); }
}
