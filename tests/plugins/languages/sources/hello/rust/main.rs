mod hi;
fn main() { hi::hi(&std::env::args().nth(1).unwrap()) }
