package main

import "fmt"

func hi(name string) { fmt.Println("hi " + name) }
