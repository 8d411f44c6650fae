package main

import ("fmt"; "os"; "os/exec"; "strings")

func main() {
	var held [][]byte
	switch os.Args[1] {
	case "loop":
		fmt.Println("begun")
		for { }
	case "memory":
		for { block := make([]byte, 16<<20); for i := range block { block[i] = 1 }; held = append(held, block) }
	case "file":
		file, _ := os.Create("big")
		for { if _, err := file.Write(make([]byte, 1<<20)); err != nil { panic(err) } }
	case "output":
		for { fmt.Print(strings.Repeat("x", 5000)) }
	case "daemon":
		if err := exec.Command("sleep", os.Args[2]).Start(); err != nil { fmt.Println("refused", err) }
	case "processes":
		count := 0
		for ; count < 400; count++ {
			if exec.Command("sleep", "30").Start() != nil { break }
		}
		fmt.Print(count)
	}
	_ = held
}
