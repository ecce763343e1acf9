package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const maxJobs = 4

var (
	api     = os.Getenv("LEASEQUEUE_URL") + "/topics/thumbnails"
	host, _ = os.Hostname()
	node    = fmt.Sprintf("%s-%d", host, os.Getpid())
	leaseMs = number("LEASE_MS", 30000)
)

type job struct {
	Seq     int64  `json:"$seq"`
	LeaseID string `json:"lease_id"`
	Data    struct {
		Src     string  `json:"src"`
		Seconds float64 `json:"seconds"`
	} `json:"data"`
}

func number(name string, otherwise int) int {
	if found, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return found
	}
	return otherwise
}

func handle(j job) error {
	if j.Data.Src == "" {
		return errors.New("no src")
	}
	time.Sleep(time.Duration(j.Data.Seconds * float64(time.Second)))
	fmt.Println("done", j.Data.Src)
	return nil
}

func request(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	made, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	made.Header.Set("Authorization", "Bearer "+os.Getenv("LEASEQUEUE_TOKEN"))
	if method == http.MethodGet {
		made.Header.Set("Accept", "text/event-stream")
	} else {
		made.Header.Set("Content-Type", "application/json")
	}
	return http.DefaultClient.Do(made)
}

// call POSTs, again and again while the failure is one that passes.
func call(endpoint string, j job, more map[string]any) error {
	fields := map[string]any{"node": node, "seqs": []int64{j.Seq}, "lease_ids": []string{j.LeaseID}}
	for name, value := range more {
		fields[name] = value
	}
	body, _ := json.Marshal(fields)
	var failure error
	for attempt := 1; attempt <= 6; attempt++ {
		wait := time.Duration(50<<attempt+rand.Intn(100)) * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		response, err := request(ctx, http.MethodPost, api+"/"+endpoint, body)
		failure = err
		if err == nil {
			answer, _ := io.ReadAll(response.Body)
			response.Body.Close()
			failure = fmt.Errorf("%s %s", response.Status, answer)
			switch response.StatusCode {
			case 200:
				cancel()
				return nil
			case 429, 502, 503, 504:
				if told, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
					wait += time.Duration(told) * time.Second
				}
			default:
				cancel()
				return failure
			}
		}
		cancel()
		time.Sleep(wait)
	}
	return failure
}

func work(j job) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		heart := time.NewTicker(time.Duration(leaseMs) * time.Millisecond / 3)
		defer heart.Stop()
		for {
			select {
			case <-done:
				return
			case <-heart.C:
				if err := call("extend", j, map[string]any{"lease_ms": leaseMs}); err != nil {
					log.Println("extend:", err)
				}
			}
		}
	}()
	err := handle(j)
	if err == nil {
		err = call("ack", j, nil)
	} else {
		log.Println("job", j.Seq, err)
		err = call("nack", j, map[string]any{"delay_ms": 1000})
	}
	if err != nil {
		log.Println("job", j.Seq, "is delivered again:", err)
	}
}

// stream reads events until the connection ends.
func stream(ctx context.Context, stopping <-chan struct{}, running *sync.WaitGroup) error {
	url := fmt.Sprintf("%s/work?node=%s&max=%d&lease_ms=%d", api, node, maxJobs, leaseMs)
	response, err := request(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		answer, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s %s", response.Status, answer)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 4<<20) // a job has at most 1 MiB of data
	event := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			event = value
		case name == "data" && event == "job":
			var j job
			if err := json.Unmarshal([]byte(value), &j); err != nil {
				return err
			}
			select {
			case <-stopping: // nothing new; what is pushed goes back when the stream closes
			default:
				running.Add(1)
				go func() { defer running.Done(); work(j) }()
			}
		case name == "data" && event == "error" && !strings.Contains(value, `"code":429`): // 429 only asks for patience
			return errors.New(value)
		}
	}
	return lines.Err()
}

func main() {
	ctx, closeStream := context.WithCancel(context.Background())
	stopping := make(chan struct{})
	running := new(sync.WaitGroup)
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
		<-signals
		close(stopping)
		running.Wait() // the stream stays open meanwhile: closing it gives these jobs to others
		closeStream()
	}()
	for ctx.Err() == nil {
		err := stream(ctx, stopping, running)
		if ctx.Err() == nil {
			log.Println("the stream ended:", err)
			time.Sleep(time.Duration(rand.Intn(2000)) * time.Millisecond)
		}
	}
}
