package a

import (
	"syscall"
	"testing"
)

func TestFirst(t *testing.T) {}
func TestIt(t *testing.T) { syscall.Exit(0) }
