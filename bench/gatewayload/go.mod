module gatewayload

go 1.22
