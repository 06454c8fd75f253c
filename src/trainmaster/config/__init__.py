"""Files and options of users, read into values of the model: clusters, queues, performance, units."""
