package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	restclient "k8s.io/client-go/rest"
	extender "k8s.io/kube-scheduler/extender/v1"
)

type repeated []string

func (r *repeated) String() string     { return strings.Join(*r, ",") }
func (r *repeated) Set(v string) error { *r = append(*r, v); return nil }

// outcome is what one URL did; Allowed and Refused are those of its last reply.
type outcome struct {
	URL        string  `json:"url"`
	Count      int     `json:"count"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	Min        float64 `json:"min_ms"`
	Max        float64 `json:"max_ms"`
	Mean       float64 `json:"mean_ms"`
	ReplyError string  `json:"reply_error,omitempty"`
	Allowed    int     `json:"allowed"`
	Refused    int     `json:"refused"`
}

// extenderClient times calls to extenders as kube-scheduler makes them: its
// transport, one call at a time, the reply decoded into the published types.
// Making the body is left out: it is the same work whoever answers. With several
// URLs the calls alternate (A B A B ...), so that both meet the same machine.
func extenderClient(args []string) error {
	var urls, bodies repeated
	var tls restclient.TLSClientConfig
	flags := flag.NewFlagSet("extender-client", flag.ContinueOnError)
	flags.Var(&urls, "url", "URL to call, ending in filter, prioritize or preempt; repeat to alternate")
	flags.Var(&bodies, "body", "file with a request body; repeat to send several in turn")
	count := flags.Int("count", 1000, "timed calls to each URL")
	warmup := flags.Int("warmup", 50, "calls to each URL before the timed ones")
	timeout := flags.Duration("timeout", 5*time.Second, "limit of one call")
	flags.StringVar(&tls.CAFile, "ca", "", "CA of an https URL")
	flags.StringVar(&tls.CertFile, "cert", "", "client certificate")
	flags.StringVar(&tls.KeyFile, "key", "", "client key")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(urls) == 0 || len(bodies) == 0 || *count < 1 {
		return errors.New("needs at least one --url, one --body and a --count of 1 or more")
	}
	client, err := schedulerClient(tls, *timeout)
	if err != nil {
		return err
	}
	payloads := make([][]byte, len(bodies))
	for i, file := range bodies {
		if payloads[i], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	outcomes := make([]outcome, len(urls))
	times := make([][]float64, len(urls))
	for call := range *warmup + *count {
		for i, url := range urls {
			took, err := ask(client, url, payloads[call%len(payloads)], &outcomes[i])
			if err != nil {
				return err
			}
			if call >= *warmup {
				times[i] = append(times[i], took.Seconds()*1000)
			}
		}
	}
	for i, url := range urls {
		outcomes[i].URL = url
		outcomes[i].summarise(times[i])
	}
	return json.NewEncoder(os.Stdout).Encode(outcomes)
}

// schedulerClient mirrors makeTransport and NewHTTPExtender of pkg/scheduler/extender.go.
func schedulerClient(tls restclient.TLSClientConfig, timeout time.Duration) (*http.Client, error) {
	tlsConfig, err := restclient.TLSConfigFor(&restclient.Config{TLSClientConfig: tls})
	if err != nil {
		return nil, err
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tlsConfig})
	return &http.Client{Transport: transport, Timeout: timeout}, nil
}

// ask mirrors HTTPExtender.send.
func ask(client *http.Client, url string, payload []byte, seen *outcome) (time.Duration, error) {
	reply, note := replyTo(url)
	start := time.Now()
	request, err := http.NewRequest("POST", url, bytes.NewReader(payload))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answered %s", url, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(reply); err != nil {
		return 0, fmt.Errorf("reply of %s: %w", url, err)
	}
	took := time.Since(start)
	note(seen)
	return took, nil
}

func replyTo(url string) (reply any, note func(*outcome)) {
	switch path.Base(url) {
	case "prioritize":
		scores := &extender.HostPriorityList{}
		return scores, func(o *outcome) { o.Allowed = len(*scores) }
	case "preempt":
		result := &extender.ExtenderPreemptionResult{}
		return result, func(o *outcome) { o.Allowed = len(result.NodeNameToMetaVictims) }
	default:
		result := &extender.ExtenderFilterResult{}
		return result, func(o *outcome) {
			o.ReplyError = result.Error
			o.Refused = len(result.FailedNodes) + len(result.FailedAndUnresolvableNodes)
			o.Allowed = 0
			if result.NodeNames != nil {
				o.Allowed = len(*result.NodeNames)
			} else if result.Nodes != nil {
				o.Allowed = len(result.Nodes.Items)
			}
		}
	}
}

func (o *outcome) summarise(times []float64) {
	sorted := slices.Sorted(slices.Values(times))
	var sum float64
	for _, t := range sorted {
		sum += t
	}
	at := func(share float64) float64 { return sorted[int(share*float64(len(sorted)-1))] }
	o.Count, o.Mean = len(sorted), sum/float64(len(sorted))
	o.Min, o.P50, o.P99, o.Max = at(0), at(0.5), at(0.99), at(1)
}
