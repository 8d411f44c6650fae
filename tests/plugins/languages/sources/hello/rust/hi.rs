pub fn hi(name: &str) { println!("hi {}", name) }
