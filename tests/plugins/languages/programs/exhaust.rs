use std::{env, fs::File, io::Write, process::Command};
fn main() {
    let mut held: Vec<Vec<u8>> = vec![];
    match env::args().nth(1).unwrap().as_str() {
        "loop" => { println!("begun"); loop { std::hint::spin_loop() } }
        "memory" => loop { held.push(vec![1; 16 << 20]) },
        "file" => {
            let mut file = File::create("big").unwrap();
            loop { file.write_all(&vec![0; 1 << 20]).unwrap() }
        }
        "output" => loop { print!("{}", "x".repeat(5000)) },
        "daemon" => {
            let marker = env::args().nth(2).unwrap();
            if let Err(error) = Command::new("sleep").arg(marker).spawn() {
                println!("refused {}", error)
            }
        }
        _ => {
            let mut count = 0;
            while count < 400 && Command::new("sleep").arg("30").spawn().is_ok() { count += 1 }
            print!("{}", count)
        }
    }
}
