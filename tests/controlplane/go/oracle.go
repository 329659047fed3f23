package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// question is one line of the oracle's input. Exactly one field is set.
type question struct {
	Allocate *allocationCase `json:"allocate"`
	Select   *selection      `json:"select"`
}

// oracle answers questions about DRA with Kubernetes' own code, one JSON object a
// line in and one out, in order, until the input ends: what the scheduler's
// allocator makes of a case, and what a CEL selector says about devices.
func oracle(args []string) error {
	flags := flag.NewFlagSet("oracle", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return answerLines(os.Stdin, os.Stdout)
}

// answerLines flushes whenever no further question is waiting, so that a client
// may send many and read later, or one at a time.
func answerLines(from io.Reader, to io.Writer) error {
	in, out := bufio.NewReaderSize(from, 1<<20), bufio.NewWriterSize(to, 1<<20)
	encoder := json.NewEncoder(out)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return out.Flush()
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(answer(line)); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// answer never fails: what cannot be asked, and what makes Kubernetes panic, is
// said in the reply, so that one question costs the others nothing.
func answer(line []byte) (reply any) {
	defer func() {
		if reason := recover(); reason != nil {
			reply = map[string]string{"panic": fmt.Sprint(reason)}
		}
	}()
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return map[string]string{"malformed": err.Error()}
	}
	switch {
	case asked.Allocate != nil:
		return asked.Allocate.answer()
	case asked.Select != nil:
		return asked.Select.answer()
	default:
		return map[string]string{"malformed": "neither allocate nor select is set"}
	}
}
