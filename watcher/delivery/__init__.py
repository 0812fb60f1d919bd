"""Records to observers: handlers, batches, Lambda functions, failures. Imports `record`."""
