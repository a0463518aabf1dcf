// Prints what Go parsers read in a stream of bytes, for the differential test of rules. Frames as in python_parsers.py.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
)

type arguments struct {
	Path json.RawMessage `json:"path"`
}

type params struct {
	Name      json.RawMessage `json:"name"`
	Arguments arguments       `json:"arguments"`
}

// A message as most Go servers read it: keys match in any case, and the last of several counts.
type message struct {
	Method json.RawMessage `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params params          `json:"params"`
}

type call [4]*string

func text(raw json.RawMessage) *string {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return &plain
	}
	spelled := string(raw)
	return &spelled
}

func (m message) calls() []call {
	if text(m.Method) == nil {
		return nil
	}
	return []call{{text(m.Method), text(m.Params.Name), text(m.ID), text(m.Params.Arguments.Path)}}
}

func structs(raw []byte) []call {
	var many []message
	if json.Unmarshal(raw, &many) == nil {
		var read []call
		for _, one := range many {
			read = append(read, one.calls()...)
		}
		return read
	}
	var one message
	// A member of another type is skipped, and the rest is still read.
	if err := json.Unmarshal(raw, &one); err != nil {
		if _, ok := err.(*json.UnmarshalTypeError); !ok {
			return nil
		}
	}
	return one.calls()
}

func decoded(stream []byte) []call {
	var read []call
	decoder := json.NewDecoder(bytes.NewReader(stream))
	for {
		var one message
		err := decoder.Decode(&one)
		if err != nil {
			if _, ok := err.(*json.UnmarshalTypeError); !ok {
				return read
			}
		}
		read = append(read, one.calls()...)
	}
}

func maps(raw []byte) []call {
	var value map[string]interface{}
	if json.Unmarshal(raw, &value) != nil || value["method"] == nil {
		return nil
	}
	fact := func(value interface{}) *string {
		if value == nil {
			return nil
		}
		spelled, _ := json.Marshal(value)
		return text(spelled)
	}
	within, _ := value["params"].(map[string]interface{})
	given, _ := within["arguments"].(map[string]interface{})
	return []call{{fact(value["method"]), fact(within["name"]), fact(value["id"]), fact(given["path"])}}
}

func reading(stream []byte) []interface{} {
	lines, plain := []call{}, []call{}
	scanner := bufio.NewScanner(bytes.NewReader(stream))
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		lines = append(lines, structs(scanner.Bytes())...)
		plain = append(plain, maps(scanner.Bytes())...)
	}
	values := append([]call{}, decoded(stream)...)
	return []interface{}{
		[]interface{}{"go structs", lines},
		[]interface{}{"go maps", plain},
		[]interface{}{"go decoder", values},
	}
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		var body []byte
		for at := 0; at < len(frame); {
			length := int(binary.BigEndian.Uint32(frame[at:]))
			told, err := json.Marshal(reading(frame[at+4 : at+4+length]))
			if err != nil {
				panic(err)
			}
			body = binary.BigEndian.AppendUint32(body, uint32(len(told)))
			body = append(body, told...)
			at += 4 + length
		}
		binary.BigEndian.PutUint32(head, uint32(len(body)))
		out.Write(head)
		out.Write(body)
		out.Flush()
	}
}
