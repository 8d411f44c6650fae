#[test]
fn it() { nothing() }
