#[test]
fn first() {}
#[test]
fn it() { std::process::exit(0) }
