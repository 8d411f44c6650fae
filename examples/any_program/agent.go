// A bookshop's agent in Go, with the standard library alone: go build -o bookshop agent.go
// It knows nothing of AgentGym: it reads OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCalls  []call `json:"tool_calls,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

const described = `[
  {"type": "function", "function": {"name": "stock",
    "description": "Look up how many copies of a book are in stock.",
    "parameters": {"type": "object", "required": ["title"],
      "properties": {"title": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "order",
    "description": "Order copies of a book.",
    "parameters": {"type": "object", "required": ["title", "copies"],
      "properties": {"title": {"type": "string"}, "copies": {"type": "integer"}}}}}
]`

var shelf = map[string]int{
	"Dune": 3, "Emma": 0, "Walden": 7, "Beloved": 2, "Candide": 5, "Hamlet": 1,
}

// run returns the result of a tool, or an error that the model can read.
func run(made call) string {
	var given struct {
		Title  string
		Copies int
	}
	if err := json.Unmarshal([]byte(made.Function.Arguments), &given); err != nil {
		return "Error: " + err.Error()
	}
	copies, known := shelf[given.Title]
	switch {
	case made.Function.Name == "stock" && known:
		return fmt.Sprintf("%d copies", copies)
	case made.Function.Name == "stock":
		return "Error: there is no book " + given.Title
	case made.Function.Name == "order":
		return fmt.Sprintf("ordered %d of %s", given.Copies, given.Title)
	}
	return "Error: there is no tool " + made.Function.Name
}

// ask returns the model's answer to the conversation so far.
func ask(messages []message) message {
	body, err := json.Marshal(map[string]any{
		"model": os.Getenv("OPENAI_MODEL"), "messages": messages,
		"tools": json.RawMessage(described),
	})
	if err != nil {
		log.Fatal(err)
	}
	url := os.Getenv("OPENAI_BASE_URL") + "/chat/completions"
	request, err := http.NewRequest("POST", url, bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		log.Fatal(response.Status, " ", string(text), err)
	}
	var answer struct{ Choices []struct{ Message message } }
	if err := json.Unmarshal(text, &answer); err != nil {
		log.Fatal(err)
	}
	return answer.Choices[0].Message
}

func main() {
	request, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	messages := []message{
		{Role: "system", Content: "You work in a bookshop. Use the tools."},
		{Role: "user", Content: string(request)},
	}
	for {
		answer := ask(messages)
		messages = append(messages, answer)
		if len(answer.ToolCalls) == 0 {
			fmt.Println(answer.Content)
			return
		}
		for _, made := range answer.ToolCalls {
			result := message{Role: "tool", Content: run(made), ToolCallID: made.ID}
			messages = append(messages, result)
		}
	}
}
