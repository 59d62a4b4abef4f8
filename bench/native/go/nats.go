package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsClient speaks to JetStream: one stream in files, of which the subjects are the topics.
type natsClient struct {
	connection *nats.Conn
	jetstream.JetStream
}

func newNATS(url string) (broker, error) {
	connection, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		connection.Close()
		return nil, err
	}
	_, err = js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name: "bench", Subjects: []string{queue, "topic.*"}, Storage: jetstream.FileStorage,
		Retention: jetstream.LimitsPolicy,
	})
	if err != nil {
		connection.Close()
		return nil, err
	}
	return natsClient{connection, js}, nil
}

func (c natsClient) send(body []byte) error {
	_, err := c.Publish(context.Background(), queue, body)
	return err
}

func (c natsClient) bulk(count, underWay int) error {
	waiting := make([]jetstream.PubAckFuture, 0, count)
	for number := range count {
		if number >= underWay {
			if err := answered(waiting[number-underWay]); err != nil {
				return err
			}
		}
		future, err := c.PublishAsync(queue, body(uint64(number), small))
		if err != nil {
			return err
		}
		waiting = append(waiting, future)
	}
	for _, future := range waiting[max(0, count-underWay):] {
		if err := answered(future); err != nil {
			return err
		}
	}
	return nil
}

func answered(future jetstream.PubAckFuture) error {
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return err
	case <-time.After(30 * time.Second):
		return errors.New("no answer in 30 s")
	}
}

func (c natsClient) consumer(policy jetstream.AckPolicy) (jetstream.Consumer, error) {
	return c.CreateOrUpdateConsumer(context.Background(), "bench", jetstream.ConsumerConfig{
		Durable: group, AckPolicy: policy, FilterSubject: queue, MaxAckPending: 10_000,
	})
}

func (c natsClient) consume(of int, taken func(count int) bool) error {
	consumer, err := c.consumer(jetstream.AckAllPolicy)
	if err != nil {
		return err
	}
	for more := true; more; {
		batch, err := consumer.Fetch(of, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		count := 0
		var last jetstream.Msg
		for message := range batch.Messages() {
			if len(message.Data()) == 0 {
				return errors.New("a message has no body")
			}
			last = message
			count++
		}
		if last == nil {
			return fmt.Errorf("no messages: %w", batch.Error())
		}
		if err := last.DoubleAck(context.Background()); err != nil {
			return err
		}
		more = taken(count)
	}
	return nil
}

func (c natsClient) subscribe(taken func(body []byte)) error {
	consumer, err := c.consumer(jetstream.AckExplicitPolicy)
	if err != nil {
		return err
	}
	_, err = consumer.Consume(func(message jetstream.Msg) {
		taken(message.Data())
		check(message.Ack())
	}, jetstream.PullMaxMessages(1000))
	return err
}

func (c natsClient) topics(count, underWay int) error {
	return each(count, underWay, func(number int) error {
		_, err := c.Publish(context.Background(), fmt.Sprintf("topic.%d", number), body(uint64(number), small))
		return err
	})
}

func (c natsClient) close() { c.connection.Close() }
