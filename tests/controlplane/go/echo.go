package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	extender "k8s.io/kube-scheduler/extender/v1"
)

// calls counts what the scheduler asked, so that a test can tell that it asked.
type calls struct {
	Filter     atomic.Int64
	Prioritize atomic.Int64
	Preempt    atomic.Int64
	WithNodes  atomic.Int64 // filter and prioritize calls that carried whole Nodes
	WithNames  atomic.Int64 // filter and prioritize calls that carried only names
}

func (c *calls) seen(verb *atomic.Int64, args *extender.ExtenderArgs) {
	verb.Add(1)
	if args.Nodes != nil {
		c.WithNodes.Add(1)
	}
	if args.NodeNames != nil {
		c.WithNames.Add(1)
	}
}

func (c *calls) report(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]int64{
		"filter":     c.Filter.Load(),
		"prioritize": c.Prioritize.Load(),
		"preempt":    c.Preempt.Load(),
		"withNodes":  c.WithNodes.Load(),
		"withNames":  c.WithNames.Load(),
	})
}

// echoExtender is the yardstick: an extender that decodes what it is asked with
// the published types, refuses nothing, scores everything 0 and spares nobody.
func echoExtender(args []string) error {
	flags := flag.NewFlagSet("echo-extender", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8888", "address to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var count calls
	mux := http.NewServeMux()
	mux.HandleFunc("POST /filter", decoding(func(args *extender.ExtenderArgs) any {
		count.seen(&count.Filter, args)
		return &extender.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames}
	}))
	mux.HandleFunc("POST /prioritize", decoding(func(args *extender.ExtenderArgs) any {
		count.seen(&count.Prioritize, args)
		return zeroScores(args)
	}))
	mux.HandleFunc("POST /preempt", decoding(func(args *extender.ExtenderPreemptionArgs) any {
		count.Preempt.Add(1)
		return &extender.ExtenderPreemptionResult{NodeNameToMetaVictims: metaVictims(args)}
	}))
	mux.HandleFunc("GET /calls", count.report)
	fmt.Fprintf(os.Stderr, "listening on %s\n", *listen)
	server := &http.Server{Addr: *listen, Handler: mux, IdleTimeout: 5 * time.Minute}
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func decoding[Args any](answer func(*Args) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		args := new(Args)
		if err := json.NewDecoder(r.Body).Decode(args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, answer(args))
	}
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		fmt.Fprintln(os.Stderr, "writing a reply:", err)
	}
}

func zeroScores(args *extender.ExtenderArgs) extender.HostPriorityList {
	scores := extender.HostPriorityList{}
	if args.NodeNames != nil {
		for _, name := range *args.NodeNames {
			scores = append(scores, extender.HostPriority{Host: name})
		}
	} else if args.Nodes != nil {
		for i := range args.Nodes.Items {
			scores = append(scores, extender.HostPriority{Host: args.Nodes.Items[i].Name})
		}
	}
	return scores
}

// metaVictims is the only form that the scheduler reads, whichever form it sent.
func metaVictims(args *extender.ExtenderPreemptionArgs) map[string]*extender.MetaVictims {
	if args.NodeNameToMetaVictims != nil {
		return args.NodeNameToMetaVictims
	}
	meta := make(map[string]*extender.MetaVictims, len(args.NodeNameToVictims))
	for node, victims := range args.NodeNameToVictims {
		pods := make([]*extender.MetaPod, 0, len(victims.Pods))
		for _, pod := range victims.Pods {
			pods = append(pods, &extender.MetaPod{UID: string(pod.UID)})
		}
		meta[node] = &extender.MetaVictims{Pods: pods, NumPDBViolations: victims.NumPDBViolations}
	}
	return meta
}
