package main

import "os"

func main() { hi(os.Args[1]) }
