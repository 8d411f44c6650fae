package main

import ("fmt"; "net"; "os"; "strings")

func attempt(call func() error) {
	if err := call(); err != nil { fmt.Println("refused", err) } else { fmt.Println("REACHED") }
}

func main() {
	folder := os.Args[1]
	attempt(func() error { return os.WriteFile(folder+"/written", nil, 0o666) })
	attempt(func() error { return os.Mkdir(folder+"/made", 0o777) })
	attempt(func() error { return os.Remove(folder+"/victim") })
	attempt(func() error { return os.Rename(folder+"/secret", "stolen") })
	for _, path := range []string{"/usr/x", "/etc/x", "/dev/x", "/root/x"} {
		attempt(func() error { return os.WriteFile(path, nil, 0o666) })
	}
	attempt(func() error { _, err := os.ReadFile(folder+"/secret"); return err })
	attempt(func() error { _, err := os.ReadFile("/etc/shadow"); return err })
	seen := strings.Join(os.Environ(), " ")
	for _, pid := range []string{"1", fmt.Sprint(os.Getppid()), "self"} {
		text, _ := os.ReadFile("/proc/" + pid + "/environ")
		seen += string(text)
	}
	if strings.Contains(seen, "hunter2") { fmt.Println("REACHED") } else { fmt.Println("refused") }
	attempt(func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err })
	attempt(func() error { _, err := net.ListenPacket("udp", "127.0.0.1:0"); return err })
}
