use std::{env, fs, net, os::unix::process::parent_id};
fn attempt<T, E: std::fmt::Display>(found: Result<T, E>) {
    match found { Ok(_) => println!("REACHED"), Err(error) => println!("refused {}", error) }
}
fn main() {
    let folder = env::args().nth(1).unwrap();
    attempt(fs::write(format!("{folder}/written"), ""));
    attempt(fs::create_dir(format!("{folder}/made")));
    attempt(fs::remove_file(format!("{folder}/victim")));
    attempt(fs::rename(format!("{folder}/secret"), "stolen"));
    for path in ["/usr/x", "/etc/x", "/dev/x", "/root/x"] { attempt(fs::write(path, "")); }
    attempt(fs::read(format!("{folder}/secret")));
    attempt(fs::read("/etc/shadow"));
    let mut seen: String = env::vars().map(|(name, value)| name + &value).collect();
    for pid in ["1".to_string(), parent_id().to_string(), "self".to_string()] {
        let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        seen += &String::from_utf8_lossy(&text);
    }
    println!("{}", if seen.contains("hunter2") { "REACHED" } else { "refused" });
    attempt(net::TcpListener::bind("127.0.0.1:0"));
    attempt(net::UdpSocket::bind("127.0.0.1:0"));
}
