package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitClient speaks to RabbitMQ: a durable queue, persistent messages, confirms awaited.
type rabbitClient struct {
	connection *amqp.Connection
	channel    *amqp.Channel
	kind       string
}

func newRabbit(url, kind string) (broker, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	client, err := newRabbitChannel(connection, kind)
	if err != nil {
		connection.Close()
		return nil, err
	}
	return client, nil
}

func newRabbitChannel(connection *amqp.Connection, kind string) (broker, error) {
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	client := rabbitClient{connection, channel, kind}
	return client, client.declare(queue)
}

func (c rabbitClient) declare(name string) error {
	_, err := c.channel.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": c.kind})
	return err
}

func (c rabbitClient) publish(name string, body []byte) (*amqp.DeferredConfirmation, error) {
	return c.channel.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, Body: body,
	})
}

func confirmed(one *amqp.DeferredConfirmation) error {
	done, err := one.WaitContext(context.Background())
	if err == nil && !done {
		err = errors.New("a message was not confirmed")
	}
	return err
}

func (c rabbitClient) sendTo(name string, body []byte) error {
	one, err := c.publish(name, body)
	if err != nil {
		return err
	}
	return confirmed(one)
}

func (c rabbitClient) send(body []byte) error { return c.sendTo(queue, body) }

func (c rabbitClient) bulk(count, underWay int) error {
	waiting := make([]*amqp.DeferredConfirmation, 0, count)
	for number := range count {
		if number >= underWay {
			if err := confirmed(waiting[number-underWay]); err != nil {
				return err
			}
		}
		one, err := c.publish(queue, body(uint64(number), small))
		if err != nil {
			return err
		}
		waiting = append(waiting, one)
	}
	for _, one := range waiting[max(0, count-underWay):] {
		if err := confirmed(one); err != nil {
			return err
		}
	}
	return nil
}

func (c rabbitClient) consume(of int, taken func(count int) bool) error {
	if err := c.channel.Qos(of, 0, false); err != nil {
		return err
	}
	messages, err := c.channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	// By halves, so that the broker always has something that it may send.
	count := 0
	for message := range messages {
		if len(message.Body) == 0 {
			return errors.New("a message has no body")
		}
		if count++; count == of/2 {
			if err := message.Ack(true); err != nil {
				return err
			}
			if !taken(count) {
				return nil
			}
			count = 0
		}
	}
	return errors.New("the channel was closed")
}

func (c rabbitClient) subscribe(taken func(body []byte)) error {
	if err := c.channel.Qos(1000, 0, false); err != nil {
		return err
	}
	messages, err := c.channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	go func() {
		for message := range messages {
			taken(message.Body)
			check(message.Ack(false))
		}
	}()
	return nil
}

func (c rabbitClient) topics(count, underWay int) error {
	for number := range count { // a channel declares one at a time
		if err := c.declare(fmt.Sprintf("topic.%d", number)); err != nil {
			return err
		}
	}
	return each(count, underWay, func(number int) error {
		return c.sendTo(fmt.Sprintf("topic.%d", number), body(uint64(number), small))
	})
}

func (c rabbitClient) close() { c.connection.Close() }
