package PACKAGE

import (
	_agentgym_json "encoding/json"
	_agentgym_fmt "fmt"
	_agentgym_os "os"
	_agentgym_testing "testing"
)

func _agentgym_plain(value func() any) (text string) {
	defer func() {
		if problem := recover(); problem != nil {
			said := _agentgym_fmt.Sprint(problem)
			text = _agentgym_fmt.Sprintf("raised panic: %.60q", said)
		}
	}()
	written, problem := _agentgym_json.Marshal(value())
	if problem != nil {
		return _agentgym_fmt.Sprintf("raised %.60q", problem.Error())
	}
	return string(written)
}

func TestAgentgymValues(_ *_agentgym_testing.T) {
	text := ""
	// LINES
	_agentgym_os.NewFile(4, "values").WriteString(text)
}
